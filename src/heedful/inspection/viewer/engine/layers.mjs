// Layers that encoders and decoders share.
//
//     embed          x = E[token] [* sqrt(D)] [+ P[position]]
//     sinusoidal     P[p, 2i] = sin(p / 10000^(2i/D)),  P[p, 2i+1] = cos(p / 10000^(2i/D))
//     feed-forward   y = W_2 activation(W_1 x + b_1) + b_2
//     add & norm     pre: x + sublayer(norm(x))         post: norm(x + sublayer(x))

import { add, apply, layerNorm, linear, rowOf, sigmoid, stack } from "./tensors.mjs";

// The error function, from its series below 2 and its continued fraction above.
function erf(x) {
  if (x < 0) return -erf(-x);
  if (x < 2) {
    let term = x, sum = x;
    for (let n = 1; n < 40; n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = x;
  for (let n = 40; n > 0; n--) fraction = x + n / 2 / fraction;
  return 1 - Math.exp(-x * x) / Math.sqrt(Math.PI) / fraction;
}
export const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => (x / 2) * (1 + erf(x / Math.SQRT2)),
  silu: (x) => x * sigmoid(x),
};

const angle = (position, pair, width) => position * Math.exp(2 * pair * (-Math.log(10000) / width));
export const POSITIONS = {
  sinusoidal: (position, width) => Float32Array.from({ length: width }, (_, i) => (i % 2 ? Math.cos : Math.sin)(angle(position, i >> 1, width))),
  sinusoidal_halves: (position, width) => Float32Array.from({ length: width }, (_, i) => (i < width / 2 ? Math.sin(angle(position, i, width)) : Math.cos(angle(position, i - width / 2, width)))),
};

export class Embed {
  constructor(weights, name, { positions, scaleEmbeddings }) {
    this.table = weights.table(`${name}.table.weight`);
    this.width = this.table.columns;
    this.scale = scaleEmbeddings ? Math.sqrt(this.width) : 1;
    const saved = weights.has(`${name}.positions.table`) ? weights.table(`${name}.positions.table`) : null;
    this.position = !positions ? null : saved ? (at) => rowOf(saved, at) : (at) => POSITIONS[positions](at, this.width);
  }
  // The vectors of tokens at these positions, as a matrix.
  embed(tokens, positions) {
    return stack(tokens.map((token, at) => {
      const place = this.position?.(positions[at]);
      return rowOf(this.table, token).map((value, i) => value * this.scale + (place ? place[i] : 0));
    }));
  }
}

export function makeFeedForward(weights, name, activation) {
  const up = weights.layer(`${name}.up`), down = weights.layer(`${name}.down`), act = ACTIVATIONS[activation];
  return (x) => linear(apply(linear(x, up.weight, up.bias), act), down.weight, down.bias);
}

export function makeNorm(weights, name) {
  const { weight, bias } = weights.layer(name);
  return (x) => layerNorm(x, weight.numbers, bias);
}

// (x, sublayer) -> x with the output of the sublayer added, in the order of the norm.
export function makeResidual(weights, name, norm) {
  const normalize = makeNorm(weights, `${name}.norm`);
  return norm === "pre" ? (x, sublayer) => add(x, sublayer(normalize(x))) : (x, sublayer) => normalize(add(x, sublayer(x)));
}
