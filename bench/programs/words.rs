// Strings, vectors, hash maps and boxed trees, and a channel between two threads: the
// system allocator, that is malloc. Argument: rounds.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;
use std::thread;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

enum Tree {
    Leaf(u64),
    Node(Box<Tree>, Box<Tree>),
}

fn grow(depth: u32, random: &mut Random) -> Tree {
    if depth == 0 {
        Tree::Leaf(random.below(9))
    } else {
        Tree::Node(Box::new(grow(depth - 1, random)), Box::new(grow(depth - 1, random)))
    }
}

fn sum(tree: &Tree) -> u64 {
    match tree {
        Tree::Leaf(n) => *n,
        Tree::Node(a, b) => sum(a).wrapping_mul(3).wrapping_add(sum(b)),
    }
}

fn text(random: &mut Random) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..2000 {
        let words: Vec<String> = (0..10).map(|_| format!("w{:x}", random.below(30000))).collect();
        lines.push(words.join(" "));
    }
    lines
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    // One thread writes the texts, this one takes them apart and frees them.
    let (send, receive) = mpsc::sync_channel::<Vec<String>>(4);
    let writer = thread::spawn(move || {
        let mut random = Random(1);
        for _ in 0..rounds {
            send.send(text(&mut random)).unwrap();
        }
    });
    let mut counts: HashMap<String, u64> = HashMap::new();
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut random = Random(2);
    let mut total = 0u64;
    for (round, text) in receive.iter().enumerate() {
        for line in text {
            for word in line.split(' ') {
                *counts.entry(word.to_string()).or_insert(0) += 1;
            }
            lines.entry(line[..6].to_string()).or_default().push(line.to_uppercase());
        }
        if round % 6 == 5 {
            let mut drop = false;
            lines.retain(|_, _| { drop = !drop; drop });
        }
        total = total.wrapping_add(sum(&grow(14, &mut random)));
    }
    writer.join().unwrap();
    let mut sorted: Vec<(String, u64)> = counts.into_iter().collect();
    sorted.sort();
    for (word, n) in &sorted {
        total = total.wrapping_mul(31).wrapping_add(word.len() as u64 * n);
    }
    for (key, list) in &lines {
        total = total.wrapping_mul(31).wrapping_add((key.len() * list.len()) as u64);
    }
    println!("{} words, {} keys, sum {}", sorted.len(), lines.len(), total);
}
