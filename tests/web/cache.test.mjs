// Both caches against plain indexing: rows move, sentences leave, capacities grow, garbage stays out of sight.
import assert from "node:assert/strict";
import { test } from "node:test";
import { GrowingCache, InPlaceCache, Memory } from "../../runtime/web/dist/cache.js";
import { ARRAYS } from "../../runtime/web/dist/tensors.js";

const [LAYERS, HEADS, SIZE, SOURCE, LIMIT] = [2, 2, 3, 4, 13];
const ROUNDS = 100;

/** Numbers below a limit, the same in every run: the linear congruential generator of Numerical Recipes. */
class Generator {
  constructor(seed) {
    this.state = (seed * 2654435761) >>> 0;
  }

  below(limit) {
    this.state = (Math.imul(this.state, 1664525) + 1013904223) >>> 0;
    return Math.floor((this.state / 2 ** 32) * limit);
  }

  numbers(count) {
    return Array.from({ length: count }, () => this.below(2 ** 24));
  }
}

/** Tensors as an engine lends them: full of garbage, not to be used when freed, and each to be freed once. */
class LentTensors {
  lent = new Set();

  allocate(type, dims) {
    return this.lend(ARRAYS.allocate(type, dims), NaN);
  }

  front(tensor, rows) {
    this.free(tensor);
    return this.lend(ARRAYS.front(tensor, rows));
  }

  free(tensor) {
    assert.ok(this.lent.delete(tensor), "freed twice");
  }

  lend(tensor, garbage) {
    if (garbage !== undefined) tensor.data.fill(garbage);
    this.lent.add(tensor);
    return tensor;
  }
}

function newMemory(tensors, generator, sentences) {
  const filled = (type, dims) => {
    const tensor = tensors.allocate(type, dims);
    tensor.data.set(generator.numbers(tensor.data.length));
    return tensor;
  };
  const cross = Array.from({ length: 2 * LAYERS }, () => filled("float32", [sentences, HEADS, SOURCE, SIZE]));
  return new Memory(tensors, cross, filled("int32", [sentences, SOURCE]));
}

/** The rows of a tensor, each as plain numbers. */
function rowsOf({ data, dims }) {
  const width = data.length / dims[0];
  return Array.from({ length: dims[0] }, (_, row) => [...data.subarray(row * width, (row + 1) * width)]);
}

/** One list entry for each row or sentence; moving them is plain indexing. */
class Expected {
  constructor({ cross, mask }, beams) {
    this.beams = beams;
    this.sentences = rowsOf(mask).map((row, b) => [row, ...cross.map((tensor) => rowsOf(tensor)[b])]);
    this.rows = Array.from({ length: this.sentences.length * beams }, () => []); // tokens: [2L][H][D] each
  }

  select(rows) {
    this.sentences = rows.filter((_, r) => r % this.beams === 0).map((row) => this.sentences[Math.floor(row / this.beams)]);
    this.rows = rows.map((row) => [...this.rows[row]]);
  }
}

/** reorder: beams within their sentences; leave: fewer sentences, the last ones fill gaps; permute: any order. */
function nextRows(action, generator, { beams, sentences }) {
  const order = [...sentences.keys()];
  if (action === "leave") {
    const staying = order.filter(() => generator.below(10) < 6);
    if (staying.length === 0) staying.push(0);
    const last = [...staying];
    order.splice(0, order.length, ...staying.map((_, i) => (staying.includes(i) ? i : last.pop())));
  }
  if (action === "permute") {
    for (let i = order.length - 1; i > 0; i--) {
      const j = generator.below(i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
  }
  return order.flatMap((sentence) => Array.from({ length: beams }, () => sentence * beams + generator.below(beams)));
}

/** What a layer holds of one head at one place. */
function strip({ data, dims: [, , capacity] }, place, head) {
  const from = (place * HEADS + head) * capacity * SIZE;
  return data.subarray(from, from + capacity * SIZE);
}

/** As a graph does: the new token of a row goes behind what that row has, in the same tensors or in new ones. */
function step(cache, expected, generator, inPlace, ragged) {
  const { tensors } = cache.memory;
  const getting = expected.rows.map(() => !ragged || generator.below(10) >= 3);
  const more = cache instanceof GrowingCache ? 1 : 0;
  const layers = cache.layers.map(({ type, dims: [rows, , held] }, l) =>
    inPlace ? cache.layers[l] : tensors.allocate(type, [rows, HEADS, held + more, SIZE]),
  );
  for (const [row, place] of cache.places.entries()) {
    const token = layers.map(() => Array.from({ length: HEADS }, () => generator.numbers(SIZE)));
    const used = cache.lengths[place] * SIZE;
    for (const [l, layer] of layers.entries()) {
      for (let head = 0; head < HEADS; head++) {
        const written = strip(layer, place, head);
        written.set(strip(cache.layers[l], place, head).slice(0, used));
        if (getting[row]) written.set(token[l][head], used);
        written.fill(NaN, used + (getting[row] ? SIZE : 0));
      }
    }
    if (getting[row]) expected.rows[row].push(token);
  }
  const places = cache.places.filter((_, row) => !getting[row]);
  cache.advance(inPlace ? cache.layers : layers);
  for (const place of places) cache.lengths[place] -= 1;
}

function assertSame(cache, expected) {
  const { cross, mask } = cache.memory;
  assert.deepEqual(rowsOf(mask).map((row, b) => [row, ...cross.map((tensor) => rowsOf(tensor)[b])]), expected.sentences);
  assert.deepEqual([...cache.places].sort((a, b) => a - b), [...expected.rows.keys()]);
  for (const layer of cache.layers) assert.equal(layer.dims[0], expected.rows.length);
  for (const [row, tokens] of expected.rows.entries()) {
    const place = cache.places[row];
    assert.equal(Math.floor(place / expected.beams), Math.floor(row / expected.beams));
    assert.equal(cache.lengths[place], tokens.length);
    for (const [l, layer] of cache.layers.entries()) {
      for (let head = 0; head < HEADS; head++) {
        const found = strip(layer, place, head).slice(0, tokens.length * SIZE);
        assert.deepEqual([...found], tokens.flatMap((token) => token[l][head]));
      }
    }
  }
}

/** Starts a cache of 1 to 4 sentences of 1 to 4 beams and does up to 25 things with it. */
function live(seed, form, inPlace) {
  const generator = new Generator(seed);
  const tensors = new LentTensors();
  const [count, beams] = [1 + generator.below(4), 1 + generator.below(4)];
  const memory = newMemory(tensors, generator, count);
  const expected = new Expected(memory, beams);
  const growing = form === GrowingCache;
  const ragged = !growing && generator.below(2) === 1;
  const dims = growing ? [count * beams, HEADS, SIZE] : [count * beams, HEADS, 1 + generator.below(3), SIZE];
  let cache = form.empty(memory, dims, LAYERS);
  for (let left = generator.below(26); left > 0; left--) {
    const action = ["step", "step", "reorder", "leave", "permute"][generator.below(5)];
    if (action !== "step") {
      const rows = nextRows(action, generator, expected);
      cache = cache.select(rows);
      expected.select(rows);
    } else if (expected.rows.every((tokens) => tokens.length < LIMIT)) {
      if (!growing) cache.makeRoom(1 + generator.below(4), LIMIT);
      step(cache, expected, generator, inPlace, ragged);
    }
    assertSame(cache, expected);
    assert.equal(tensors.lent.size, 4 * LAYERS + 1);
  }
  cache.release();
  assert.equal(tensors.lent.size, 0);
}

for (const [name, form, inPlace] of [
  ["in-place cache, written in place,", InPlaceCache, true],
  ["in-place cache, copied by each step,", InPlaceCache, false],
  ["growing cache", GrowingCache, false],
]) {
  test(`the ${name} is plain indexing`, () => {
    for (let seed = 0; seed < ROUNDS; seed++) live(seed, form, inPlace);
  });
}

/** Says at each layer's tokens in which place they lie; returns which of them have changed since. */
function marked(cache) {
  const { capacity } = cache;
  const mark = (layer, i) => Math.floor(i / (HEADS * capacity * SIZE));
  for (const layer of cache.layers) layer.data.forEach((_, i) => (layer.data[i] = mark(layer, i)));
  return () => {
    const changed = cache.layers.map((layer) => {
      const here = [...layer.data.keys()].filter((i) => layer.data[i] !== mark(layer, i));
      return new Set(here.map((i) => `place ${mark(layer, i)} token ${Math.floor(i / SIZE) % capacity}`));
    });
    for (const places of changed) assert.deepEqual(places, changed[0]);
    return [...changed[0]];
  };
}

test("only a beam with two heirs is copied, and of it what is used", () => {
  for (let seed = 0; seed < 60; seed++) {
    const generator = new Generator(seed);
    const [count, beams] = [1 + generator.below(4), 1 + generator.below(5)];
    const memory = newMemory(ARRAYS, generator, count);
    const cache = InPlaceCache.empty(memory, [count * beams, HEADS, 4, SIZE], LAYERS);
    for (let token = 0; token < 2; token++) cache.advance(cache.layers);
    const changes = marked(cache);
    const families = Array.from({ length: count }, () => Array.from({ length: beams }, () => generator.below(beams)));
    cache.select(families.flatMap((family, sentence) => family.map((beam) => sentence * beams + beam)));
    const copied = families.reduce((sum, family) => sum + beams - new Set(family).size, 0);
    assert.equal(changes().length, 2 * copied);
    assert.ok(changes().every((change) => /token [01]$/.test(change)));
  }
});

test("what two places share by descent is not copied again", () => {
  const cache = InPlaceCache.empty(newMemory(ARRAYS, new Generator(0), 1), [3, HEADS, 8, SIZE], LAYERS);
  const steps = (count) => {
    for (let i = 0; i < count; i++) cache.advance(cache.layers);
  };
  steps(2);
  let changes = marked(cache);
  cache.select([0, 0, 2]); // into place 1, all
  assert.deepEqual(changes(), ["place 1 token 0", "place 1 token 1"]);
  steps(1);
  changes = marked(cache);
  cache.select([1, 2, 1]); // into place 0, which has the first two already
  assert.deepEqual(cache.places, [1, 2, 0]);
  assert.deepEqual(changes(), ["place 0 token 2"]);
  steps(1);
  changes = marked(cache);
  cache.select([2, 2, 2]); // place 0 into 1, which has three of it, and into 2, which has none
  assert.deepEqual(cache.places, [0, 1, 2]);
  assert.deepEqual(changes(), ["place 1 token 3", ...[0, 1, 2, 3].map((token) => `place 2 token ${token}`)]);
});

test("room is made only where there is none, and at most to the limit", () => {
  const cache = InPlaceCache.empty(newMemory(ARRAYS, new Generator(0), 1), [2, HEADS, 3, SIZE], LAYERS);
  const capacities = [2, 3, 6, 12].map((used) => {
    cache.lengths.fill(used);
    cache.makeRoom(cache.capacity, LIMIT);
    return cache.capacity;
  });
  assert.deepEqual(capacities, [3, 6, 12, 13]);
});
