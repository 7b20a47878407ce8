//! Kinds of damage of a file, and where each of its bytes is afterwards.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::rng::Rng;

pub(crate) const PAGE: usize = 4_096;

/// A file whose bytes were changed, moved or taken away.
#[derive(Clone)]
pub(crate) struct DamagedBytes {
    bytes: Vec<u8>,
    /// The place of each byte in the sound file; [`NOWHERE`] of one that is not of it.
    origins: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl DamagedBytes {
    pub(crate) fn of(sound: &[u8]) -> Self {
        Self { bytes: sound.to_vec(), origins: (0..sound.len() as u32).collect() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn pages(&self) -> usize {
        self.bytes.len() / PAGE
    }

    fn put(&mut self, at: usize, byte: u8) {
        if self.bytes[at] != byte {
            (self.bytes[at], self.origins[at]) = (byte, NOWHERE);
        }
    }

    fn fill(&mut self, range: Range<usize>, mut byte: impl FnMut() -> u8) {
        range.for_each(|at| self.put(at, byte()));
    }

    fn insert(&mut self, at: usize, bytes: &[u8]) {
        self.bytes.splice(at..at, bytes.iter().copied());
        self.origins.splice(at..at, bytes.iter().map(|_| NOWHERE));
    }

    fn remove(&mut self, range: Range<usize>) {
        self.bytes.drain(range.clone());
        self.origins.drain(range);
    }

    fn swap_pages(&mut self, a: usize, b: usize) {
        for at in 0..PAGE {
            self.bytes.swap(a * PAGE + at, b * PAGE + at);
            self.origins.swap(a * PAGE + at, b * PAGE + at);
        }
    }

    /// Returns where the bytes of the sound file are.
    pub(crate) fn places(&self, sound: usize) -> Vec<u32> {
        let mut places = vec![NOWHERE; sound];
        for (at, origin) in self.origins.iter().enumerate().filter(|(_, origin)| **origin != NOWHERE) {
            places[*origin as usize] = at as u32;
        }
        places
    }
}

/// Returns whether ranges of one page are all there, and as far from each other as they were.
pub(crate) fn is_whole(places: &[u32], ranges: &[Range<usize>]) -> bool {
    let first = ranges.first().map_or(0, |range| range.start);
    let moved = i64::from(places[first]) - first as i64;
    let is_there = |at: usize| places[at] != NOWHERE && i64::from(places[at]) - at as i64 == moved;
    ranges.iter().all(|range| range.clone().all(is_there))
}

/// A kind of damage of one file.
pub(crate) struct Damage {
    pub(crate) kind: String,
    pub(crate) file: DamagedBytes,
    /// The bytes of the log beside it.
    pub(crate) log: Option<Vec<u8>>,
    /// True if the file does not tell that something is missing: its log was cut.
    pub(crate) is_silent: bool,
}

/// A sound file, with the pages of its tables and indexes.
pub(crate) struct SoundFile {
    pub(crate) bytes: Vec<u8>,
    /// The pages of each table and index, counted from 0, the first of them first.
    pub(crate) trees: BTreeMap<String, Vec<usize>>,
    pub(crate) tables: Vec<String>,
    /// The file before its last commits, and the log that holds them.
    pub(crate) behind: (Vec<u8>, Vec<u8>),
}

/// The fields of a header: name, first byte, number of bytes.
const FIELDS: [(&str, usize, usize); 7] = [
    ("magic", 0, 16),
    ("page size", 16, 2),
    ("page count", 28, 4),
    ("free list", 32, 8),
    ("user version", 60, 4),
    ("application id", 68, 4),
    ("change counter", 24, 4),
];

impl SoundFile {
    /// Returns all kinds of damage; single pages with a stride, and the random ones once for each round.
    pub(crate) fn damages(&self, seed: u64, rounds: u64, stride: usize) -> Vec<Damage> {
        let mut all = Vec::new();
        let mut add = |kind: String, change: &dyn Fn(&mut DamagedBytes)| {
            let mut file = DamagedBytes::of(&self.bytes);
            change(&mut file);
            all.push(Damage { kind, file, log: None, is_silent: false });
        };
        let zero = |page: usize| move |file: &mut DamagedBytes| file.fill(page * PAGE..(page + 1) * PAGE, || 0);
        add("none".into(), &|_| {});
        for (name, pages) in &self.trees {
            if self.tables.contains(name) {
                add(format!("root of {name}"), &zero(pages[0]));
            } else {
                add("an index".into(), &|file| pages.iter().for_each(|page| zero(*page)(file)));
            }
        }
        for page in (1..self.bytes.len() / PAGE).step_by(stride) {
            add("a page".into(), &zero(page));
        }
        self.of_header(seed, &mut add);
        self.of_length(&mut add);
        for round in 0..rounds {
            self.random(seed, round, &mut add);
        }
        self.with_logs(seed, &mut all);
        all
    }

    fn of_header(&self, seed: u64, add: &mut dyn FnMut(String, &dyn Fn(&mut DamagedBytes))) {
        let noise = |seed: u64| {
            let mut rng = Rng::stream(seed, 1);
            move || rng.next() as u8
        };
        add("header of zeros".into(), &|file| file.fill(0..100, || 0));
        add("header of noise".into(), &|file| file.fill(0..100, noise(seed)));
        add("page 1 of zeros".into(), &|file| file.fill(0..PAGE, || 0));
        add("page 1 of noise".into(), &|file| file.fill(0..PAGE, noise(seed)));
        for (name, at, count) in FIELDS {
            add(name.into(), &|file| file.fill(at..at + count, || 0));
        }
    }

    fn of_length(&self, add: &mut dyn FnMut(String, &dyn Fn(&mut DamagedBytes))) {
        let (all, half) = (self.bytes.len(), self.bytes.len() / PAGE / 2 * PAGE);
        add("half of zeros".into(), &|file| file.fill(half..all, || 0));
        add("half cut".into(), &|file| file.remove(half..all));
        add("a byte cut".into(), &|file| file.remove(all - 1..all));
        add("a page inserted".into(), &|file| file.insert(half, &[0; PAGE]));
        add("a page taken away".into(), &|file| file.remove(half..half + PAGE));
        add("512 bytes inserted".into(), &|file| file.insert(half + 700, &[0xaa; 512]));
        add("512 bytes missing".into(), &|file| file.remove(half + 700..half + 700 + 512));
        add("a page before it".into(), &|file| file.insert(0, &[b'x'; PAGE]));
        add("pages swapped".into(), &|file| file.swap_pages(half / PAGE, half / PAGE + 7));
        add("line ends longer".into(), &|file| {
            let feeds: Vec<usize> = (0..all).rev().filter(|at| self.bytes[*at] == b'\n').collect();
            let (mut bytes, mut origins) = (Vec::new(), Vec::new());
            for at in 0..all {
                if self.bytes[at] == b'\n' {
                    bytes.push(b'\r');
                    origins.push(NOWHERE);
                }
                bytes.push(self.bytes[at]);
                origins.push(at as u32);
            }
            debug_assert_eq!(bytes.len(), all + feeds.len());
            (file.bytes, file.origins) = (bytes, origins);
        });
        add("line ends shorter".into(), &|file| {
            let ends: Vec<usize> = (0..all - 1).rev().filter(|at| &self.bytes[*at..at + 2] == b"\r\n").collect();
            ends.into_iter().for_each(|at| file.remove(at..at + 1));
        });
    }

    fn random(&self, seed: u64, round: u64, add: &mut dyn FnMut(String, &dyn Fn(&mut DamagedBytes))) {
        let all = self.bytes.len();
        for (kind, count) in [("30 random bytes", 30), ("100 random bytes", 100)] {
            add(kind.into(), &|file| {
                let mut rng = Rng::stream(seed + round, count);
                (0..count).for_each(|_| file.put(rng.below(all), rng.next() as u8));
            });
        }
        add("1,000 random bits".into(), &|file| {
            let mut rng = Rng::stream(seed + round, 1_000);
            for _ in 0..1_000 {
                let at = rng.below(all);
                file.put(at, file.bytes[at] ^ (1 << rng.below(8)));
            }
        });
        for (kind, share) in [("1 % of the pages", 100), ("10 % of the pages", 10)] {
            add(kind.into(), &|file| {
                let mut rng = Rng::stream(seed + round, share as u64);
                for _ in 0..(file.pages() / share).max(1) {
                    let page = rng.below(file.pages());
                    file.fill(page * PAGE..(page + 1) * PAGE, || 0);
                }
            });
        }
        add("a sector of noise".into(), &|file| {
            let mut rng = Rng::stream(seed + round, 512);
            let at = rng.below(all / 512) * 512;
            file.fill(at..at + 512, || rng.next() as u8);
        });
    }

    /// Adds logs beside a sound file: nonsense, one that was cut, and one of an older state.
    fn with_logs(&self, seed: u64, all: &mut Vec<Damage>) {
        let mut rng = Rng::stream(seed, 2);
        let nonsense: Vec<u8> = (0..40_000).map(|_| rng.next() as u8).collect();
        let (behind, log) = &self.behind;
        let mut add = |kind: &str, file: &[u8], log: &[u8], is_silent| {
            let (kind, file) = (kind.to_owned(), DamagedBytes::of(file));
            all.push(Damage { kind, file, log: Some(log.to_vec()), is_silent });
        };
        add("a log of nonsense", &self.bytes, &nonsense, false);
        add("a whole log", behind, log, false);
        add("a log that is cut", behind, &log[..log.len() / 2], true);
        add("a log of an older state", &self.bytes, &log[..log.len() / 2], false);
    }
}
