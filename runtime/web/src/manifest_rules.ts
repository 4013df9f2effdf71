/** What the parts of a manifest must have to do with each other. */

import { GRAPH_SUFFIXES, graphFormat, MANIFEST_NAME, type Manifest, type SpecialIds } from "./manifest.js";
import { shown } from "./schema.js";

/** Every contradiction between the parts of a manifest; the parts themselves are right. */
export function contradictions(m: Manifest): string[] {
  const names = Object.keys(m.files).map((name) => name.toLowerCase());
  const roles = {
    "source.tokenizer.file": m.source.tokenizer.file,
    "target.tokenizer.file": m.target.tokenizer.file,
    ...Object.fromEntries(Object.entries(m.graphs).map(([name, { file }]) => [`graphs.${name}.file`, file])),
    ...Object.fromEntries(m.weights.map((name, i) => [`weights[${i}]`, name])),
  };
  const { source, target } = m;
  const format = graphFormat(m);
  const wanted = format === "single" ? ["search"] : ["decoder", "encoder"];
  const rules: [boolean, string][] = [
    [!names.includes(MANIFEST_NAME), `files: ${MANIFEST_NAME} cannot list itself`],
    [new Set(names).size === names.length, "files: two names differ only in upper and lower case"],
    [
      Object.keys(m.graphs).sort().join() === wanted.join(),
      `graphs of format ${format} must be ${wanted.join(" and ")}`,
    ],
    ...Object.entries(roles).map(([role, name]): [boolean, string] => [
      Object.hasOwn(m.files, name),
      `${role} ${name} is not listed in files`,
    ]),
    ...Object.entries(m.graphs).map(([name, { file }]): [boolean, string] => [
      file.endsWith(GRAPH_SUFFIXES[format]),
      `graphs.${name}.file ${file} must end with ${GRAPH_SUFFIXES[format]}, as of format ${format}`,
    ]),
    [
      source.tokenizer.file !== target.tokenizer.file || source.tokenizer.kind === target.tokenizer.kind,
      "source and target give one tokenizer file two kinds",
    ],
    ...idRules("source", source, m.model.source_vocab_size),
    ...idRules("target", target, m.model.target_vocab_size),
    [
      target.never_generated.every((id) => id < m.model.target_vocab_size),
      `target.never_generated holds ids outside the vocabulary of ${m.model.target_vocab_size}`,
    ],
    ...listRules("source", ["prefix_ids", "suffix_ids"], source, m.model.source_vocab_size),
    ...listRules("target", ["prefix_ids"], target, m.model.target_vocab_size),
    ...(m.cache.form === "fixed" ? fixedRules(m) : []),
    [!target.never_generated.includes(target.eos_id), "target.never_generated holds eos_id, so nothing could end"],
  ];
  return rules.filter(([fine]) => !fine).map(([, problem]) => problem);
}

/** What the form of the cache whose every shape is a number asks for. */
function fixedRules({ graphs, model }: Manifest): [boolean, string][] {
  const tensors = Object.entries(graphs).flatMap(([graph, { inputs, outputs }]) =>
    [...inputs, ...outputs].map(({ name, shape }): [boolean, string] => {
      const open = shape.find((axis) => typeof axis === "string" || axis === 0);
      const found = `graphs.${graph}: ${name} has the axis ${shown(open)}`;
      return [open === undefined, `${found}, but cache.form is fixed: it must be a number above 0`];
    }),
  );
  const lengths = (
    [
      ["encoder", "input_ids", 1, "max_source_length"],
      ["decoder", "past_key_values.0.decoder.key", 2, "max_target_length"],
    ] as const
  ).flatMap(([graph, name, axis, longest]) =>
    (graphs[graph]?.inputs ?? [])
      .filter((tensor) => tensor.name === name && typeof tensor.shape[axis] === "number")
      .map(({ shape }): [boolean, string] => [
        shape[axis] === model[longest],
        `model.${longest} is ${model[longest]}, but ${name} of the ${graph} has another length in its shape`,
      ]),
  );
  return [...tensors, ...lengths];
}

function idRules(name: string, ids: SpecialIds, size: number): [boolean, string][] {
  return (["pad_id", "start_id", "eos_id", "unk_id"] as const).map((key) => [
    ids[key] < size,
    `${name}.${key} ${ids[key]} is outside the vocabulary of ${size}`,
  ]);
}

/** Lists of ids that may be missing. */
function listRules<K extends string>(
  name: string,
  keys: readonly K[],
  side: { readonly [key in K]?: readonly number[] },
  size: number,
): [boolean, string][] {
  return keys.map((key) => [
    (side[key] ?? []).every((id) => id < size),
    `${name}.${key} holds ids outside the vocabulary of ${size}`,
  ]);
}
