// Ids and text of the own SentencePiece reader, against Python's SentencePiece.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { BoundedTokenizer, loadTokenizer } from "../../runtime/web/dist/tokenizer.js";
import { fixtures } from "./environment.mjs";

const folder = fixtures("tokenizers");
const names = folder.path ? readdirSync(folder.path).filter((name) => name.endsWith(".spm")) : [];

test("the fixture is there", { skip: folder.reason }, () => assert.ok(names.length >= 9));

for (const name of names) {
  const expected = JSON.parse(readFileSync(`${folder.path}/${name.replace(".spm", ".json")}`, "utf8"));
  const tokenizer = loadTokenizer("sentencepiece", readFileSync(`${folder.path}/${name}`), 0);

  test(`${name}: ids of ${expected.texts.length} strings are those of Python`, () => {
    assert.ok(expected.texts.length > 1000);
    const differing = expected.texts.filter((text, i) => String(tokenizer.encode(text)) !== String(expected.ids[i]));
    assert.deepEqual(differing.map((text) => [text, tokenizer.encode(text), expected.ids[expected.texts.indexOf(text)]]), []);
  });

  test(`${name}: text of ${expected.runs.length} runs of ids is that of Python`, () => {
    const differing = expected.runs.filter((run, i) => tokenizer.decode(run) !== expected.decoded[i]);
    assert.deepEqual(differing.map((run) => [run, tokenizer.decode(run), expected.decoded[expected.runs.indexOf(run)]]), []);
  });

  test(`${name}: every token is written as in Python`, () => {
    assert.deepEqual(tokenizer.tokens([...expected.tokens.keys()]), expected.tokens);
  });
}

test("a token beyond the vocabulary of the model is the unknown one", () => {
  const list = loadTokenizer("words", new TextEncoder().encode("<unk>\na\nb\nc\n"), 0);
  const bounded = new BoundedTokenizer(list, 3, 0);
  assert.deepEqual(bounded.encode("a b c nothing"), [1, 2, 0, 0]);
  assert.equal(bounded.size, 3);
  assert.equal(bounded.decode([2, 1]), "b a");
});
