// The frames of live pages follow the theme of the site. The address of an open page says what its visitor did: it stays.
const isDark = () => { const { theme } = document.body.dataset; return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches); };
function follow() {
  for (const frame of document.querySelectorAll(".live iframe")) {
    let opened = "";
    try { opened = frame.contentWindow.location.href; } catch { /* pages from a disk may not read each other */ }
    const src = frame.getAttribute("src"), isOpen = opened.includes("#"), [page, state] = (isOpen ? opened : src).split("#");
    const kept = state.split("&").filter((part) => !part.startsWith("theme=")).join("&");
    const address = `${page}#${kept}&theme=${isDark() ? "dark" : "light"}`;
    if (isOpen) frame.contentWindow.location.replace(address);  // "back" still leaves the page of the site
    else if (address !== src) frame.setAttribute("src", address);
  }
}
addEventListener("DOMContentLoaded", () => {
  if (!document.querySelector(".live iframe")) return;
  follow();
  new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
});
