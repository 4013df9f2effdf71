// A zip whose members are stored as they are.
import { Buffer } from "node:buffer";

/** `method` 8 only claims to be compressed. */
export function storedZip(files, { method = 0 } = {}) {
  const parts = [];
  const central = [];
  let place = 0;
  for (const [name, data] of files) {
    const head = (signature, size, fields) => {
      const bytes = Buffer.alloc(size);
      bytes.writeUInt32LE(signature);
      for (const [offset, value, width] of fields) bytes.writeUIntLE(value, offset, width);
      return bytes;
    };
    const sizes = (at) => [[at, data.length, 4], [at + 4, data.length, 4], [at + 8, name.length, 2]];
    parts.push(head(0x04034b50, 30, [[8, method, 2], ...sizes(18)]), Buffer.from(name), data);
    central.push(head(0x02014b50, 46, [[10, method, 2], ...sizes(20), [42, place, 4]]), Buffer.from(name));
    place += 30 + name.length + data.length;
  }
  const list = Buffer.concat(central);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50);
  end.writeUInt16LE(files.size, 8);
  end.writeUInt16LE(files.size, 10);
  end.writeUInt32LE(list.length, 12);
  end.writeUInt32LE(place, 16);
  return new Uint8Array(Buffer.concat([...parts, list, end]));
}
