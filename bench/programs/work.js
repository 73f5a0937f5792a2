// JSON, buffers and zlib: what node takes from malloc beside its own heap. Argument: rounds.

const crypto = require('crypto'), zlib = require('zlib');

let seed = 1;
const random = n => (seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff) % n;
const hash = crypto.createHash('sha256');
for (let round = Number(process.argv[2]); round > 0; round--) {
  const rows = [];
  for (let i = 0; i < 4000; i++)
    rows.push({ id: i, name: 'n' + random(1e6), tags: Array.from({ length: random(6) }, () => random(100)) });
  hash.update(JSON.stringify(JSON.parse(JSON.stringify(rows))));
  const kept = [];
  for (let i = 0; i < 1500; i++) {
    const buffer = Buffer.allocUnsafeSlow(1 + random(20000));
    buffer.fill(i & 255);
    if (i % 8 === 0) kept.push(buffer);
    hash.update(buffer.subarray(0, 64));
  }
  for (const buffer of kept) hash.update(zlib.inflateSync(zlib.deflateSync(buffer, { level: 1 })).subarray(0, 64));
}
console.log(hash.digest('hex'));
