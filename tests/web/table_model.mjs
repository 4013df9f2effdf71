// A step model made of a function: the logits of a source and of all tokens so far. Its cache is those tokens.
import assert from "node:assert/strict";
import { bestCandidates } from "../../runtime/web/dist/proposers.js";
import { fnv1a64, philox4x32 } from "../../runtime/web/dist/random.js";
import { addInPlace, logSoftmaxInPlace } from "../../runtime/web/dist/rules.js";

class HistoryCache {
  constructor(sources, rows) {
    this.sources = sources;
    this.rows = rows;
    this.stale = false;
  }

  used() {
    assert.ok(!this.stale, "an old cache was used");
    this.stale = true;
    return this;
  }

  select(rows) {
    this.used();
    const beams = this.rows.length / this.sources.length;
    const owners = rows.map((row) => Math.floor(row / beams));
    owners.forEach((owner, i) => assert.equal(owner, owners[i - (i % beams)], "rows of one sentence were parted"));
    const sources = owners.filter((_, i) => i % beams === 0).map((owner) => this.sources[owner]);
    return new HistoryCache(sources, rows.map((row) => this.rows[row]));
  }

  release() {
    this.used();
  }
}

export class TableModel {
  constructor(logits, vocabSize, startId) {
    Object.assign(this, { logits, vocabSize, startId, attention: null, attentionOutputs: [] });
  }

  async start(sources, beamSize) {
    return new HistoryCache(sources, Array(sources.length * beamSize).fill([]));
  }

  async step(tokens, cache, bias, count) {
    assert.equal(bias.length, this.vocabSize);
    const [logits, longer] = await this.stepLogits(tokens, cache);
    const rows = tokens.map((_, r) => logits.slice(r * this.vocabSize, (r + 1) * this.vocabSize));
    return [bestCandidates(rows.map((row) => logSoftmaxInPlace(addInPlace(row, bias))), count), longer];
  }

  async stepLogits(tokens, cache) {
    cache.used();
    assert.equal(tokens.length, cache.rows.length);
    const rows = cache.rows.map((row, r) => [...row, tokens[r]]);
    const beams = rows.length / cache.sources.length;
    const logits = new Float32Array(rows.length * this.vocabSize);
    rows.forEach((row, r) => {
      assert.equal(row[0], this.startId);
      logits.set(this.logits(cache.sources[Math.floor(r / beams)], row.slice(1)), r * this.vocabSize);
    });
    return [logits, new HistoryCache(cache.sources, rows)];
  }
}

/** As in tests/web/search_fixture.py. */
export function hashedLogits(seed, vocabSize, holes) {
  return (source, history) => {
    const [low, high] = fnv1a64([...source, 0xffffff, ...history]);
    return Float32Array.from({ length: vocabSize }, (_, v) => {
      const [first, second] = philox4x32([v, 0, low, high], [seed, 0]);
      return holes && second & 1 && v < vocabSize - 1 ? -Infinity : (first >>> 13) * 2 ** -16 - 4;
    });
  };
}
