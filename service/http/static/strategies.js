/** The strategies that come with the service, as choices; another package's is added by name. */

export const STRATEGIES = [
  "composite",
  "count_summary",
  "importance",
  "middle_out",
  "none",
  "oldest_first",
  "relevance",
  "sliding_window",
  "smart_window",
  "stable_window",
  "summarization",
  "tool_result_clearing",
  "window_size",
];
