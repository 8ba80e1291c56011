import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { decideEnd, millisecondsLeft, parse } from "../src/reader";

interface Vectors {
  statuses: { name: string; attributes: Record<string, unknown>; status: unknown }[];
  ends: {
    name: string; attributes: Record<string, unknown>; reason: string | null; cut_off: boolean;
    end: unknown;
  }[];
  countdowns: {
    name: string; deadline: number | null; window: number | null; fresh: boolean; now: number;
    left: number | null;
  }[];
}

const file = new URL("../../../tests/vectors/attributes.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8")) as Vectors;

/** The file speaks Python's field names. */
const camel = (value: unknown): unknown =>
  JSON.parse(
    JSON.stringify(value).replace(
      /"(\w+)":/g, (_, key: string) => `"${key.replace(/_(\w)/g, (_, c: string) => c.toUpperCase())}":`,
    ),
  );

describe("statuses", () => {
  test.each(vectors.statuses)("$name", ({ attributes, status }) => {
    expect(parse(attributes)).toEqual(camel(status));
  });
});

describe("ends", () => {
  test.each(vectors.ends)("$name", ({ attributes, reason, cut_off, end }) => {
    expect(decideEnd(parse(attributes), (reason ?? "").toLowerCase(), cut_off)).toEqual(end);
  });
});

describe("countdowns", () => {
  test.each(vectors.countdowns)("$name $deadline $now", ({ deadline, window, fresh, now, left }) => {
    expect(millisecondsLeft(deadline, window, fresh, now)).toBe(left);
  });
});
