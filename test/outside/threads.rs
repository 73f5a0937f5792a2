// Rust's containers from many threads: blocks made here are freed there, and every
// sum is known in advance. Prints one line, the same under any allocator.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

const THREADS: u64 = 12;
const ROUNDS: u64 = 400;

type Parcel = (u64, String, Vec<u64>, Box<[u8]>);

fn parcel(n: u64) -> Parcel {
    let words: Vec<u64> = (0..n % 97).collect();
    (n, format!("parcel {n} {}", "x".repeat((n % 300) as usize)), words,
     vec![n as u8; (n * 37 % 70000) as usize].into_boxed_slice())
}

fn check(p: &Parcel) -> u64 {
    assert!(p.1.starts_with(&format!("parcel {} ", p.0)));
    assert_eq!(p.2.len() as u64, p.0 % 97);
    assert!(p.3.iter().all(|&b| b == p.0 as u8));
    p.1.len() as u64 + p.2.iter().sum::<u64>() + p.3.len() as u64
}

fn work(id: u64, next: Sender<Parcel>, mine: Receiver<Parcel>, all: Arc<Mutex<BTreeMap<u64, String>>>) -> u64 {
    let mut kept: VecDeque<Parcel> = VecDeque::new();
    let mut index: HashMap<String, Vec<u32>> = HashMap::new();
    let mut sum = 0;
    for round in 0..ROUNDS {
        let n = id * ROUNDS + round;
        next.send(parcel(n)).unwrap();
        index.entry(format!("key{}", n % 61)).or_default().push(n as u32);
        kept.push_back(mine.recv().unwrap());
        if kept.len() > 20 {
            sum += check(&kept.pop_front().unwrap()); // freed by another thread than made it
        }
        if round % 16 == 0 {
            all.lock().unwrap().insert(n, format!("{id}/{round}"));
            // A thread of its own for a short life.
            let mut text = String::new();
            sum += thread::spawn(move || { for i in 0..200 { text.push_str(&i.to_string()); } text.len() as u64 })
                .join().unwrap();
        }
    }
    sum += kept.iter().map(check).sum::<u64>();
    sum + index.values().map(|v| v.len() as u64).sum::<u64>()
}

fn main() {
    let all = Arc::new(Mutex::new(BTreeMap::new()));
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
    senders.rotate_left(1); // thread i sends to i + 1
    let threads: Vec<_> = senders.drain(..).zip(receivers.drain(..)).enumerate()
        .map(|(id, (next, mine))| { let all = all.clone(); thread::spawn(move || work(id as u64, next, mine, all)) })
        .collect();
    let sum: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    let all = all.lock().unwrap();
    println!("{} {} {}", sum, all.len(), all.values().map(|s| s.len()).sum::<usize>());
}
