//! Visits rows in the order of a key, past those that cannot be read.
//!
//! Rows are read in pages, after a failure one at a time, and after a second one the next readable row is
//! searched in steps that double, and then halved, so that the rows around a damaged page are found. *Absent:* any loop
//! that the bytes of the file could prolong: keys ascend, and the failed attempts are counted.

use super::reason;
use crate::limits::{SCAN_FAILURES_MAX, SCAN_ROWS};
use crate::store::sqlite::fault::{Res, corrupt};

/// Reads rows whose key is at least the first argument, at most as many as the second.
type ReadPage<'p, T> = &'p mut dyn FnMut(i64, usize) -> Res<Vec<(i64, T)>>;

/// Visits all rows with a key of at least `first`. `lost` gets the ends of each range that cannot be read, and the
/// reason.
pub(crate) fn scan<T>(
    first: i64,
    page: ReadPage<'_, T>,
    visit: &mut dyn FnMut((i64, T)) -> Res<()>,
    lost: &mut dyn FnMut(i64, Option<i64>, String) -> Res<()>,
) -> Res<()> {
    let (mut from, mut limit, mut failures) = (first, SCAN_ROWS, 0_usize);
    loop {
        let failed = match page(from, limit) {
            Ok(rows) => {
                let Some((last, _)) = rows.last() else { return Ok(()) };
                let last = *last;
                let ascend = rows.windows(2).all(|pair| pair[0].0 < pair[1].0) && rows[0].0 >= from;
                if ascend {
                    rows.into_iter().try_for_each(&mut *visit)?;
                    let Some(next) = last.checked_add(1) else { return Ok(()) };
                    from = next;
                    limit = if limit < SCAN_ROWS { limit * 2 } else { SCAN_ROWS };
                    continue;
                }
                corrupt("rows", "their keys do not ascend")
            }
            Err(fault) => fault,
        };
        let why = reason(failed)?;
        if limit > 1 {
            limit = 1;
            continue;
        }
        failures += 1;
        let next = if failures > SCAN_FAILURES_MAX { None } else { next_readable(from, page) };
        lost(from, next, why)?;
        let Some(next) = next else { return Ok(()) };
        from = next;
    }
}

/// Returns the least key above `from` from which on a row can be read; `None` if there is none.
fn next_readable<T>(from: i64, page: ReadPage<'_, T>) -> Option<i64> {
    // Some(true): a row; Some(false): the end; None: damage.
    let mut read = |key: i64| match page(key, 1) {
        Ok(rows) => match rows.first() {
            Some((found, _)) => (*found >= key).then_some(true),
            None => Some(false),
        },
        Err(_) => None,
    };
    let (mut bad, mut step, mut end) = (from, 1_u64, None);
    let mut good = loop {
        let key = match end {
            // Past the last row: a row can only be between the two.
            Some(end) if end - bad <= 1 => return None,
            Some(end) => bad + (end - bad) / 2,
            None => from.checked_add_unsigned(step)?,
        };
        match read(key) {
            Some(true) => break key,
            Some(false) => end = Some(key),
            None => bad = key,
        }
        if end.is_none() {
            step = step.checked_mul(2)?;
        }
    };
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if read(middle) == Some(true) { good = middle } else { bad = middle }
    }
    Some(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_the_rows_around_damaged_ones() {
        for bad in [vec![], vec![5], vec![0], (100..900).collect(), vec![7, 9, 11, 400], (900..1_000).collect()] {
            let mut page = |from: i64, limit: usize| {
                let rows: Vec<(i64, ())> = (from.max(0)..1_000).take(limit).map(|key| (key, ())).collect();
                if rows.iter().any(|(key, ())| bad.contains(key)) {
                    return Err(corrupt("a page", "it is damaged"));
                }
                Ok(rows)
            };
            let (mut found, mut lost) = (Vec::new(), Vec::new());
            let mut visit = |(key, ()): (i64, ())| {
                found.push(key);
                Ok(())
            };
            scan(0, &mut page, &mut visit, &mut |from, to, _| {
                lost.push((from, to));
                Ok(())
            })
            .unwrap();
            let expected: Vec<i64> = (0..1_000).filter(|key| !bad.contains(key)).collect();
            assert_eq!(found, expected, "{bad:?}: {lost:?}");
            assert_eq!(lost.is_empty(), bad.is_empty());
        }
    }

    #[test]
    fn a_scan_from_the_least_key_finds_rows_around_zero() {
        let mut page = |from: i64, limit: usize| {
            let rows: Vec<(i64, ())> = (from.max(-40)..0).take(limit).map(|key| (key, ())).collect();
            if rows.iter().any(|(key, ())| *key < -20) {
                return Err(corrupt("a page", "it is damaged"));
            }
            Ok(rows)
        };
        let mut found = Vec::new();
        let mut visit = |(key, ()): (i64, ())| {
            found.push(key);
            Ok(())
        };
        scan(i64::MIN, &mut page, &mut visit, &mut |_, _, _| Ok(())).unwrap();
        assert_eq!(found, (-20..0).collect::<Vec<i64>>());
    }
}
