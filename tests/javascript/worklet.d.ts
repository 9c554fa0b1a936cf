// Of the scope in which `worklet.js` runs, which the types of the DOM leave out.
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(name: string, made: new () => AudioWorkletProcessor): void;
