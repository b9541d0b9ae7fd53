// The frames of live pages follow the theme of the site.
const isDark = () => { const { theme } = document.body.dataset; return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches); };
function follow() {
  for (const frame of document.querySelectorAll(".live iframe")) {
    const [page, state] = frame.getAttribute("src").split("#");
    const kept = state.split("&").filter((part) => !part.startsWith("theme=")).join("&");
    const src = `${page}#${kept}&theme=${isDark() ? "dark" : "light"}`;
    if (src !== frame.getAttribute("src")) frame.setAttribute("src", src);
  }
}
addEventListener("DOMContentLoaded", () => {
  if (!document.querySelector(".live iframe")) return;
  follow();
  new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
});
