// node generate_with_transformers.mjs TRANSFORMERS RESULT FOLDER...: greedy search by transformers.js, whose package lies
// in TRANSFORMERS. Writes to RESULT, for each folder, the ids as its `generate` gives them.
import { readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const [transformers, result, ...folders] = process.argv.slice(2);
const entry = pathToFileURL(join(transformers, "dist/transformers.node.mjs"));
const { AutoModelForSeq2SeqLM, Tensor, env } = await import(entry.href);
env.allowRemoteModels = false;
env.allowLocalModels = true;

/** int64 [rows, width], the shorter rows filled up. */
function tensor(rows, fill) {
  const width = Math.max(...rows.map((row) => row.length));
  const values = rows.flatMap((row) => [...row, ...Array(width - row.length).fill(fill)]);
  return new Tensor("int64", BigInt64Array.from(values, BigInt), [rows.length, width]);
}

async function generated(folder) {
  env.localModelPath = dirname(folder);
  const expected = JSON.parse(await readFile(join(folder, "expected.json"), "utf8"));
  const model = await AutoModelForSeq2SeqLM.from_pretrained(basename(folder), { dtype: "fp32", device: "cpu" });
  model.generation_config.forced_eos_token_id = null;
  const output = await model.generate({
    inputs: tensor(expected.source_ids, model.config.pad_token_id),
    attention_mask: tensor(expected.source_ids.map((ids) => ids.map(() => 1)), 0),
    ...expected.generate,
    ...expected.generate_greedy,
  });
  return output.tolist().map((row) => row.map(Number));
}

const found = {};
for (const folder of folders) found[folder] = { greedy: await generated(folder) };
await writeFile(result, JSON.stringify(found));
