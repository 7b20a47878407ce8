//! Medians, and sides that take turns.

use std::time::{Duration, Instant};

use crate::Result;

/// Returns the median; NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Returns the minimum: the cost of the work on an otherwise idle machine.
pub(crate) fn best(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

/// Returns microseconds.
pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Returns how many microseconds `work` took.
pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let value = work()?;
    Ok((micros(start.elapsed()), value))
}

/// One side of a comparison: does the work of a round and returns its cost.
pub(crate) type Side<'a> = Box<dyn FnMut() -> Result<f64> + 'a>;

/// Lets the sides take turns for `rounds` rounds, after one that does not count, each time with another one first.
/// Returns the costs of each side.
pub(crate) fn interleave(rounds: usize, sides: &mut [Side<'_>]) -> Result<Vec<Vec<f64>>> {
    let mut costs = vec![Vec::with_capacity(rounds); sides.len()];
    for round in 0..=rounds {
        for turn in 0..sides.len() {
            let at = (round + turn) % sides.len();
            let cost = sides[at]()?;
            if round > 0 {
                costs[at].push(cost);
            }
        }
    }
    Ok(costs)
}

/// Returns the median over the rounds of `over` divided by `under`.
pub(crate) fn ratio(over: &[f64], under: &[f64]) -> f64 {
    median(&over.iter().zip(under).map(|(over, under)| over / under).collect::<Vec<_>>())
}

/// Numbers that look random and are the same in every run (SplitMix64).
pub(crate) struct SeededNumbers(pub(crate) u64);

impl SeededNumbers {
    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Returns `bytes` bytes of ASCII text that differ for each `seed`.
pub(crate) fn text(seed: u64, bytes: usize) -> String {
    const WORDS: [&str; 8] = ["append ", "only ", "checkpoint ", "of the ", "thread ", "and ", "its ", "history "];
    let mut text = format!("{seed}: ");
    let mut dice = SeededNumbers(seed);
    while text.len() < bytes {
        text.push_str(WORDS[dice.below(8) as usize]);
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn sides_take_turns_and_the_first_round_does_not_count() {
        let order = std::cell::RefCell::new(Vec::new());
        let side = |name: f64| -> Side<'_> {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name as i32);
                Ok(name)
            })
        };
        let costs = interleave(2, &mut [side(1.0), side(2.0)]).unwrap();
        assert_eq!(costs, [[1.0, 1.0], [2.0, 2.0]]);
        assert_eq!(*order.borrow(), [1, 2, 2, 1, 1, 2]);
        assert_eq!(ratio(&costs[1], &costs[0]), 2.0);
    }

    #[test]
    fn texts_have_their_length_and_differ() {
        assert_eq!(text(7, 500).len(), 500);
        assert_ne!(text(7, 500), text(8, 500));
    }
}
