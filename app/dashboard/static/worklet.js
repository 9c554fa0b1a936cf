// Runs where the browser makes sound: passes what the microphone hears on, a tenth of a second at a time.
class Blocks extends AudioWorkletProcessor {
  held = new Float32Array(1600);
  filled = 0;

  process([input]) {
    const samples = input[0];
    if (!samples) return true;
    for (let at = 0; at < samples.length; ) {
      const count = Math.min(samples.length - at, this.held.length - this.filled);
      this.held.set(samples.subarray(at, at + count), this.filled);
      this.filled += count;
      at += count;
      if (this.filled === this.held.length) {
        this.port.postMessage(this.held);
        this.held = new Float32Array(1600);
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("blocks", Blocks);
