"""An owner's builds: listed, shown, compared, and built again with other options."""

import asyncio
from collections.abc import Mapping
from typing import Any

from formatters.providers.formats import build_provider_request
from service.audit.compare import compare
from service.audit.reports import BUILD_ID, BuildReport, BuildReports, ContentMode, make_report
from service.audit.what_if import build_with_options
from service.builder import ContextBuilder
from service.http.error_responses import NotFoundError
from service.http.recent_builds import RecentBuilds
from service.http.views import (
    BuildPage,
    ShownBuild,
    ShownComparison,
    ShownForm,
    WhatIf,
    missing_texts,
    shown_build,
    shown_comparison,
)
from service.wire.request import ManagementOption


class Builds:
    """Builds by owner. Raises `BusError` and `StoreError`."""

    def __init__(
        self,
        recent: RecentBuilds,
        reports: BuildReports,
        builder: ContextBuilder,
        content: ContentMode,
    ) -> None:
        self._recent = recent
        self._reports = reports
        self._builder = builder
        self._content = content

    async def newest(self, owner_key: str, limit: int, *, before: int | None = None) -> BuildPage:
        """List builds of an owner, newest first.

        A build whose report is gone, as after an erasure, is not listed. The bus is asked about all
        of them at once: one connection each would leave the worker none for its own requests.
        """
        builds = list(self._recent.of(owner_key, before=before))[: limit + 1]
        page = [build.summary for build in builds[:limit]]
        names = [summary.build_id for summary in page]
        present = await self._reports.existing(names) if names else frozenset()
        for name in set(names) - present:
            self._recent.drop(name)
        return BuildPage(
            builds=[summary for summary in page if summary.build_id in present],
            next=builds[limit - 1].number if len(builds) > limit else None,
        )

    async def find(self, owner_key: str, build_id: str) -> BuildReport:
        """Return the report of a build.

        Raises `NotFoundError`, with the same text for builds of other owners and unknown ones.
        """
        missing = NotFoundError(
            "this owner has no such build: it has expired, was erased, or belongs to another owner"
        )
        if not BUILD_ID.fullmatch(build_id):
            raise missing
        report = await self._reports.find(build_id)
        if report is None:
            self._recent.drop(build_id)
            raise missing
        if report.request.owner_key != owner_key:
            raise missing
        return report

    async def show(self, owner_key: str, build_id: str) -> ShownBuild:
        """Return all that may be shown of a build."""
        return shown_build(await self.find(owner_key, build_id), self._content)

    async def in_form(self, owner_key: str, build_id: str, form: str) -> ShownForm:
        """Return the context of a build as the body of a provider's call."""
        report = await self.find(owner_key, build_id)
        body = None
        if self._content == report.content == "full":
            body = await asyncio.to_thread(_body_in, form, report)
        missing = missing_texts(report, self._content)
        return ShownForm(format=form, body=body, content=self._content, unavailable=missing)

    async def compare(self, owner_key: str, a: str, b: str) -> ShownComparison:
        """Compare two builds."""
        first, second = [await self.find(owner_key, build_id) for build_id in (a, b)]
        comparison = await asyncio.to_thread(compare, first, second)
        return shown_comparison(comparison, self._content)

    async def what_if(self, owner_key: str, build_id: str, options: Mapping[str, Any]) -> WhatIf:
        """Build again with other options, on the history as it is now; raises as building does.

        Raises `NotReplayableError` if the request can't be made again.
        """
        before = await self.find(owner_key, build_id)
        built = await build_with_options(before, options, self._builder)
        now = make_report(built, at=before.at, content=self._content, settings=before.settings)
        comparison = await asyncio.to_thread(compare, before, now)
        return WhatIf(
            build=shown_build(now, self._content),
            comparison=shown_comparison(comparison, self._content),
        )


def _body_in(form: str, report: BuildReport) -> Mapping[str, Any]:
    """Return the context of a full report in the form of a provider."""
    messages = [message.message or {} for message in report.messages]
    tools = [tool.definition or {} for tool in report.tools]
    option = report.request.options.get("context_management")
    management = ManagementOption.model_validate(option).to_management() if option else None
    body = build_provider_request(form, messages, tools, report.stable_messages, management)
    return body or {"messages": messages, **({"tools": tools} if tools else {})}
