// Numbers as text, exactly as bench/units.py and bench/report/field.py write them.
"use strict";

/** `value` with `digits` decimals; ties go to the even digit, as in Python. */
function fixed(value, digits) {
  const tie = new RegExp(`${digits ? `\\d{${digits}}` : "\\."}50*$`);
  const text = value.toFixed(digits);
  if (tie.test(value.toFixed(Math.min(100, digits + 30))) && Number(text.at(-1)) % 2) {
    return (value * (1 - 2e-16)).toFixed(digits);
  }
  return text;
}

function exponential(value, digits) {
  const [mantissa, exponent] = value.toExponential(digits).split("e");
  return `${mantissa}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

function significant(value, digits = 3) {
  if (value === 0) return "0";
  const magnitude = Number(value.toExponential(digits - 1).split("e")[1]);
  if (magnitude < -4 || magnitude > 4) return exponential(value, digits - 1);
  return fixed(value, Math.max(0, digits - 1 - magnitude));
}

function formatMs(ms) {
  return ms >= 999.5 ? `${significant(ms / 1000)} s` : `${significant(ms)} ms`;
}

function formatBytes(count) {
  const prefixes = ["B", "kB", "MB", "GB", "TB"];
  let value = count, place = 0;
  while (Math.abs(value) >= 999.5 && place < prefixes.length - 1) {
    value /= 1000;
    place += 1;
  }
  return place ? `${significant(value)} ${prefixes[place]}` : `${Math.trunc(value)} B`;
}

/** Two significant digits without trailing zeros: Python's `.2g`. */
function twoDigits(value) {
  if (value === 0) return "0";
  const exponent = Number(value.toExponential(1).split("e")[1]);
  if (exponent < -4 || exponent >= 2) return exponential(value, 1).replace(/\.0e/, "e");
  return fixed(value, Math.max(0, 1 - exponent)).replace(/\.0*$|(\.\d*?)0+$/, "$1");
}

const SHOW = {
  ms: formatMs,
  bytes: formatBytes,
  count: String,
  number: significant,
  error: twoDigits,
  percent: (value) => `${fixed(value * 100, 0)}%`,
  joule: (value) => `${significant(value)} J`,
};

/** A number of this kind as text; what is no number is shown as what it is. */
function shown(value, kind) {
  return typeof value === "number" && kind in SHOW ? SHOW[kind](value) : String(value);
}
