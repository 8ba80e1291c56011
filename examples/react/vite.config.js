const backend = process.env.BACKEND_URL ?? "http://127.0.0.1:8080";

export default {
  server: { host: "127.0.0.1", port: 5174, proxy: { "/api": backend } },
  // the reader is taken from the folder next door, which may have a livekit-client of its own
  resolve: { dedupe: ["livekit-client"] },
  build: { chunkSizeWarningLimit: 1500 },
};
