// Sphinx gives most pages that have all the words the same score, and lists them by their numbers.
// Whoever types three words or more describes a symptom, and there is a page for these.
Scorer.score = ([page, , , , score]) => {
  const query = new URLSearchParams(window.location.search).get("q") || "";
  const isSymptom = query.trim().split(/\s+/).length > 2;
  return isSymptom && page === "book/debugging" ? score + 1 : score;
};
