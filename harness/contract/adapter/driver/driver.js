// Calls one function of a Node.js package (AR-04).
//
// The request is a JSON object on stdin: import_path, function and args. The answer is the last
// line of stdout: MARKER, and a JSON object with a value or an error. What the library prints goes
// to stderr.
"use strict";

const MARKER = "evalbox/answer/v1 ";
const fs = require("fs");

// The stream of stdout is replaced before anything has used it.
Object.defineProperty(process, "stdout", { get: () => process.stderr, configurable: true });

// name returns the name of the type of a value.
function name(value) {
  return (value !== null && typeof value === "object" && value.constructor && value.constructor.name) || typeof value;
}

// plain returns a value as JSON has it.
function plain(value, above) {
  switch (typeof value) {
    case "undefined":
      return null;
    case "string":
    case "boolean":
      return value;
    case "number":
      if (!Number.isFinite(value)) {
        throw new RangeError(`the result has the number ${value}, which JSON does not have`);
      }
      return value;
    case "object":
      break;
    default:
      throw new TypeError(`the result has a value of type ${name(value)}, which JSON does not have`);
  }
  if (value === null) return null;
  if (above.includes(value)) throw new TypeError("the result contains itself");
  const next = above.concat([value]);
  if (value instanceof Date) return value.toISOString();
  if (value instanceof ArrayBuffer || value instanceof Uint8Array) {
    return { base64: Buffer.from(value).toString("base64") };
  }
  if (value instanceof BigInt64Array || value instanceof BigUint64Array || ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    return Array.from(value, (item) => plain(item, next));
  }
  if (Array.isArray(value) || value instanceof Set) {
    return Array.from(value, (item) => plain(item, next));
  }
  if (value instanceof Number || value instanceof String || value instanceof Boolean) return plain(value.valueOf(), next);
  if (typeof value.toJSON === "function") return plain(value.toJSON(), next);
  if (value instanceof Map) return object(value.entries(), next);
  if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet || value instanceof DataView) {
    throw new TypeError(`the result has a value of type ${name(value)}, which JSON does not have`);
  }
  return object(Object.entries(value).filter(([, item]) => item !== undefined), next);
}

// object returns an object with the given keys and values. It has no prototype, so that each key
// is one.
function object(entries, above) {
  const made = Object.create(null);
  for (const [key, item] of entries) {
    if (typeof key !== "string" && typeof key !== "number") {
      throw new TypeError(`the result has a key of type ${name(key)}; keys must be text`);
    }
    made[key] = plain(item, above);
  }
  return made;
}

// load imports a package: as modules do it, and otherwise as require does, which also searches
// NODE_PATH and the directories of the system.
async function load(path) {
  try {
    return await import(path);
  } catch (error) {
    const codes = ["ERR_MODULE_NOT_FOUND", "ERR_UNSUPPORTED_DIR_IMPORT"];
    if (!error || !codes.includes(error.code)) throw error;
    let found;
    try {
      found = require.resolve(path);
    } catch {
      throw error;
    }
    return await import(require("url").pathToFileURL(found).href);
  }
}

// find returns a function, and the object that it belongs to. A CommonJS package has its
// names below the default export, if they cannot be seen from outside.
function find(module, path) {
  const names = path.split(".");
  let owner;
  let found = module;
  if (!(names[0] in module) && module.default !== undefined && module.default !== null) found = module.default;
  for (const part of names) {
    owner = found;
    found = found === undefined || found === null ? undefined : found[part];
  }
  if (typeof found !== "function") {
    throw new TypeError(`${path} is not a function of the package, but of type ${name(found)}`);
  }
  return [owner, found];
}

// failure returns what was thrown as the answer has it.
function failure(error) {
  try {
    if (error instanceof Error) {
      return { type: String(error.name), message: String(error.message), traceback: String(error.stack) };
    }
    return { type: name(error), message: String(error), traceback: "" };
  } catch {
    return { type: "Error", message: "the error has no text", traceback: "" };
  }
}

// write writes all of a text.
function write(fd, text) {
  let data = Buffer.from(text);
  while (data.length > 0) {
    try {
      data = data.subarray(fs.writeSync(fd, data));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1); // a pipe that is full
    }
  }
}

async function main() {
  const request = JSON.parse(fs.readFileSync(0, "utf8"));
  let line;
  let code = 0;
  try {
    const [owner, found] = find(await load(request.import_path), request.function);
    line = JSON.stringify({ value: plain(await Reflect.apply(found, owner, request.args), []) });
  } catch (error) {
    const failed = failure(error);
    write(2, (failed.traceback || failed.message) + "\n");
    line = JSON.stringify({ error: failed });
    code = 1;
  }
  write(1, "\n" + MARKER + line + "\n");
  process.exit(code); // also if the library has timers or connections left
}

main();
