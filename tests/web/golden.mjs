// What equal means: SPEC.md, "Golden file".
import assert from "node:assert/strict";

export function assertGolden(found, expected) {
  const what = JSON.stringify([expected.text, expected.options]).slice(0, 200);
  assert.deepEqual(found.map((h) => h.ids), expected.hypotheses.map((h) => h.ids), what);
  assert.deepEqual(found.map((h) => h.text), expected.hypotheses.map((h) => h.text), what);
  assert.deepEqual(found.map((h) => h.finish_reason), expected.hypotheses.map((h) => h.finish_reason), what);
  for (const [i, h] of expected.hypotheses.entries()) {
    assertClose(found[i].score, h.score, what);
    assert.equal(found[i].token_scores.length, h.token_scores.length, what);
    h.token_scores.forEach((score, t) => assertClose(found[i].token_scores[t], score, what));
  }
}

function assertClose(found, expected, what) {
  assert.ok(Math.abs(found - expected) <= 1e-4, `${found} is not ${expected}: ${what}`);
}
