// Types of the scope in which `worklet.js` runs; the DOM types lack them.
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(name: string, made: new () => AudioWorkletProcessor): void;
