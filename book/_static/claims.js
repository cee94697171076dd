/* A text field and boxes for the verdicts above the list of statements. Whoever asks for something
   sees the archive, too, which is folded otherwise. Without this script the page is the complete list. */
(function () {
  "use strict";

  const ENGLISH = {
    verdicts: { true: "True", false: "False", depends: "It depends" },
    search: "Words in the statement, correction or source",
    verdict: "Verdict",
    statements: "Statements",
    shown: (count, all) => `${count} of ${all} statements shown`,
  };
  const CHINESE = {
    verdicts: { true: "成立", false: "不成立", depends: "视情况而定" },
    search: "说法、更正或来源中的词，以空格隔开",
    verdict: "裁定",
    statements: "说法",
    shown: (count, all) => `显示 ${count} 条，共 ${all} 条说法`,
  };
  const TEXTS = document.documentElement.lang.startsWith("zh") ? CHINESE : ENGLISH;

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function start() {
    const items = [...document.querySelectorAll("ul.claims > li")];
    if (!items.length) return;
    const claims = items.map((item) => ({
      item,
      section: item.closest("section"),
      text: item.textContent.toLowerCase(),
      verdict: item.querySelector(".verdict").className.match(/verdict-(\w+)/)[1],
    }));
    const sections = [...new Set(claims.map((claim) => claim.section))];
    const folds = [...new Set(items.map((item) => item.closest("details")))].filter(Boolean);
    let asked = false;

    const field = make("input", { type: "search", id: "claims-search", autocomplete: "off" });
    const boxes = Object.entries(TEXTS.verdicts).map(([verdict, words]) => {
      const count = claims.filter((claim) => claim.verdict === verdict).length;
      const box = make("input", { type: "checkbox", value: verdict, checked: true });
      return { box, label: make("label", {}, box, ` ${words} (${count})`) };
    });
    const status = make("p", { className: "claims-status" });
    status.setAttribute("role", "status");
    const form = make(
      "form", { className: "claims-filter" },
      make("p", {}, make("label", { htmlFor: field.id }, TEXTS.search), field),
      make("fieldset", {}, make("legend", {}, TEXTS.verdict), ...boxes.map(({ label }) => label)),
      status,
    );
    form.setAttribute("role", "search");
    form.setAttribute("aria-label", TEXTS.statements);

    function filter() {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = new Set(boxes.filter(({ box }) => box.checked).map(({ box }) => box.value));
      for (const claim of claims) {
        claim.item.hidden =
          !chosen.has(claim.verdict) || !words.every((word) => claim.text.includes(word));
      }
      for (const section of sections) {
        section.hidden = claims.every((claim) => claim.section !== section || claim.item.hidden);
      }
      const asks = words.length > 0 || chosen.size < boxes.length;
      if (asks !== asked) folds.forEach((fold) => { fold.open = asks; });
      asked = asks;
      const shown = claims.filter((claim) => !claim.item.hidden).length;
      status.textContent = TEXTS.shown(shown, claims.length);
    }

    /* A link to a statement shows it, whatever is chosen. */
    function showTarget() {
      const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!target || !target.closest("[hidden]")) return;
      field.value = "";
      for (const { box } of boxes) box.checked = true;
      filter();
      const folded = target.closest("details");
      if (folded) folded.open = true;
      target.scrollIntoView();
    }

    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    window.addEventListener("hashchange", showTarget);
    sections[0].before(form);
    filter();
  }

  // Headings of hidden sections are also in the list of contents, where a link shows them again.
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
