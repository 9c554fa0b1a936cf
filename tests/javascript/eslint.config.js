import js from "@eslint/js";

export default [
  { ignores: ["**/vendor/**"] },
  js.configs.recommended,
  {
    rules: {
      // The type checker checks names.
      "no-undef": "off",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-shadow": "error",
      "no-unused-expressions": ["error", { allowShortCircuit: true, allowTernary: true }],
      eqeqeq: ["error", "always", { null: "ignore" }],
      "array-callback-return": "error",
      "no-self-compare": "error",
      "no-promise-executor-return": "off",
    },
  },
];
