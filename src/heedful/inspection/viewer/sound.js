// Playing a recording: the part that a step looked at.

const MIN_HEARD_SHARE = 0.2;  // of the largest weight
// The seconds from the first to the last slot that has a large weight.
function lookedAt(weights, pieces) {
  const least = MIN_HEARD_SHARE * Math.max(...weights), heard = pieces.filter((_, at) => weights[at] >= least);
  return [heard[0].interval[0], heard.at(-1).interval[1]];
}
// Play some seconds of a WAV in base64; a part that is still playing ends.
let sounding = null;
function playPart(wav, start, end) {
  sounding?.pause();
  const sound = sounding = new Audio(`data:audio/wav;base64,${wav}`);
  sound.addEventListener("loadedmetadata", () => { sound.currentTime = start; sound.play(); });
  sound.addEventListener("playing", () => setTimeout(() => sound.pause(), 1000 * (end - sound.currentTime)), { once: true });
}
