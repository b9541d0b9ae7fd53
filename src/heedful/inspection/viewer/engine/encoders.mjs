// Encoders: the tokens of a source -> { memory, maps }: a matrix with a vector per slot, and the attention of every layer.
//
//     transformer   x = x + attention(x), then x = x + feed-forward(x), in every layer, with the norms of add & norm
//     recurrent     h_t = [forward RNN(x_t, h_{t-1}); backward RNN(x_t, h_{t+1})], stacked
//     bottleneck    one slot: [last forward state; first backward state]

import { SelfAttention } from "./attention.mjs";
import { RecurrentLayer } from "./cells.mjs";
import { Embed, makeFeedForward, makeNorm, makeResidual } from "./layers.mjs";
import { concatenate, rowsOf, stack } from "./tensors.mjs";

const count = (length) => Array.from({ length }, (_, at) => at);

class TransformerEncoder {
  constructor(weights, name, settings, embed) {
    const options = { ...settings, width: embed.width, place: "encoder" };
    this.embed = embed;
    this.layers = count(settings.layers).map((layer) => ({
      attention: new SelfAttention(weights, `${name}.layers.${layer}.attention`, { ...options, layer }),
      feedForward: makeFeedForward(weights, `${name}.layers.${layer}.feed_forward`, settings.activation),
      aroundAttention: makeResidual(weights, `${name}.layers.${layer}.around_attention`, settings.norm),
      aroundFeedForward: makeResidual(weights, `${name}.layers.${layer}.around_feed_forward`, settings.norm),
    }));
    this.norm = settings.norm === "pre" ? makeNorm(weights, `${name}.norm`) : (x) => x;
  }
  encode(tokens, changes) {
    let x = this.embed.embed(tokens, count(tokens.length));
    const maps = this.layers.map(({ attention, feedForward, aroundAttention, aroundFeedForward }) => {
      let map = null;
      x = aroundAttention(x, (y) => { map = attention.readAll(y, changes); return map.update; });
      x = aroundFeedForward(x, feedForward);
      return { attention, records: map.records, source: map.source };
    });
    return { memory: this.norm(x), maps };
  }
}

class RecurrentEncoder {
  constructor(weights, name, settings, embed) {
    this.embed = embed;
    this.layers = count(settings.layers).map((layer) => ({
      ahead: new RecurrentLayer(weights, `${name}.ahead.${layer}`, 0, settings),
      back: settings.bidirectional ? new RecurrentLayer(weights, `${name}.back.${layer}`, 0, settings) : null,
    }));
  }
  encode(tokens) {
    let states = rowsOf(this.embed.embed(tokens, count(tokens.length)));
    for (const { ahead, back } of this.layers) {
      const forward = ahead.run(states), backward = back?.run(states.slice().reverse()).reverse();
      states = forward.map((state, slot) => (backward ? concatenate(state, backward[slot]) : state));
    }
    return { memory: stack(states), maps: [] };
  }
}

class Bottleneck {
  constructor(weights, name, settings, embed) {
    this.encoder = new RecurrentEncoder(weights, `${name}.encoder`, settings, embed);
    this.isBidirectional = settings.bidirectional;
  }
  encode(tokens) {
    const states = rowsOf(this.encoder.encode(tokens).memory), last = states[states.length - 1], half = last.length / 2;
    return { memory: stack([this.isBidirectional ? concatenate(last.subarray(0, half), states[0].subarray(half)) : last]), maps: [] };
  }
}

const ENCODERS = { transformer: TransformerEncoder, recurrent: RecurrentEncoder, bottleneck: Bottleneck };

export function makeEncoder(weights, model) {
  const settings = model.encoder, inner = settings.kind === "bottleneck" ? "encoder.encoder" : "encoder";
  const embed = new Embed(weights, `${inner}.embed`, { positions: model.positions, scaleEmbeddings: model.scale_embeddings });
  return new ENCODERS[settings.kind](weights, "encoder", settings, embed);
}
