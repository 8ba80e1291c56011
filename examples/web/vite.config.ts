import { defineConfig } from "vitest/config";

const backend = process.env.BACKEND_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  server: { host: "127.0.0.1", port: 5173, proxy: { "/api": backend } },
  preview: { host: "127.0.0.1", port: 5173, proxy: { "/api": backend } },
  build: { chunkSizeWarningLimit: 1000 },
  test: { include: ["test/**/*.test.ts"] },
});
