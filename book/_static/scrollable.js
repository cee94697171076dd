/* A formula that is wider than its column scrolls; let the keyboard reach it, too. */
document.addEventListener("DOMContentLoaded", async () => {
  if (!window.MathJax || !MathJax.startup) return;
  await MathJax.startup.promise;
  const mark = () => document.querySelectorAll("mjx-container[display='true']").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
  mark();
  window.addEventListener("resize", mark);
});
/* A chapter far down in the table of contents is in view there. */
document.addEventListener("DOMContentLoaded", () => {
  const bar = document.querySelector(".bd-sidebar-primary");
  const here = bar && bar.querySelector("li.current > a.current");
  if (here) bar.scrollTop = here.getBoundingClientRect().top - bar.getBoundingClientRect().top - bar.clientHeight / 2;
});
