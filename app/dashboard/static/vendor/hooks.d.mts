// State that begins as null or as an object may take any shape; what begins as a text, a number or a switch stays one.
type Loose<S> = S extends string ? string : S extends number ? number : S extends boolean ? boolean : any;
export { useCallback, useEffect, useMemo } from "preact/hooks";
export function useState<S>(first: S | (() => S)): [Loose<S>, (next: Loose<S> | ((before: Loose<S>) => Loose<S>)) => void];
export function useRef<S>(first: S): { current: Loose<S> };
