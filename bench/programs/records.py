"""Objects with attributes, dictionaries, JSON and regular expressions; argument: rounds.

Run with PYTHONMALLOC=malloc; otherwise Python's own allocator would serve the small objects.
"""

import collections
import hashlib
import json
import re
import sys


class Record:
    def __init__(self, number, name, tags, price):
        self.number, self.name, self.tags, self.price = number, name, tags, price


def make(seed, count):
    records = []
    for i in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7fffffff
        records.append(Record(i, f"name-{seed >> 12:05x}", [f"t{seed >> 8 & 63}", f"u{i % 17}"],
                              (seed >> 5) / 128))
    return records


def main():
    digest = hashlib.sha256()
    names = re.compile(r'"name": "(name-(\w+))"')
    kept = collections.deque(maxlen=3)  # records live for three rounds
    for round_ in range(int(sys.argv[1])):
        records = make(round_ + 1, 12000)
        kept.append(records)
        by_tag = collections.defaultdict(list)
        for record in records:
            for tag in record.tags:
                by_tag[tag].append(record)
        summary = {tag: [sum(r.price for r in group), min(r.name for r in group), len(group)]
                   for tag, group in by_tag.items()}
        text = json.dumps([vars(record) for record in records])
        back = json.loads(text)
        back.sort(key=lambda row: (row["name"], row["number"]))
        changed = names.sub(lambda match: match[2].upper(), text)
        digest.update(json.dumps(summary, sort_keys=True).encode())
        digest.update(f"{back[0]} {back[-1]} {len(changed)}".encode())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
