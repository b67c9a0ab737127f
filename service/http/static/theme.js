// Choose the colours before anything is drawn; this is no module, since modules run later.
document.documentElement.dataset.theme = localStorage.getItem("ctxb.theme") ?? "system";
