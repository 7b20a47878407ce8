//! Pruning: checkpoints are reduced to their records and to what the next kept checkpoint of their branch shows.
//!
//! A pruning reads the thread in one snapshot and writes in one transaction, which is refused if the thread has changed
//! since; then it begins anew. Deletions of list positions and index snapshots stay.

mod sql;
mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals::base::{CheckpointId, IdSource, Namespace, ThreadId};
use annals::store::backend::pruned_metadata;
use annals::store::log::{PruneTarget, Prunes, UnprunablePlaces};
use annals::store::{Pruned, StoreError};

use self::sql as prune_sql;
use self::thread::{PrunedPoint, PrunedThread, Spot, places};
use crate::PostgresBackend;
use crate::client::{Param, PgQuery};
use crate::error::write_error;
use crate::limits::PLANS_MAX;
use crate::pack::packed;
use crate::read::points::INLINE;
use crate::rows::pack_change;

impl Prunes for PostgresBackend {
    fn unprunable(&self, thread: &ThreadId, without: &[Namespace]) -> Result<UnprunablePlaces, StoreError> {
        let Some(of) = PrunedThread::read(self, thread)? else { return Ok(UnprunablePlaces::new()) };
        Ok(places(of.held(&without.iter().collect())))
    }

    fn prune(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        for _ in 0..PLANS_MAX {
            let Some(of) = PrunedThread::read(self, thread)? else { return Ok(Pruned::default()) };
            let (queries, report) = match what {
                PruneTarget::Spans(_) => reductions(&of, &due(&of, what))?,
                PruneTarget::Namespaces(namespaces) => removals(&of, &of.removable(namespaces))?,
            };
            if report.checkpoints == 0 && queries.is_empty() {
                return Ok(Pruned::default());
            }
            if write(self, &of, queries)? {
                self.signal.notify();
                return Ok(report);
            }
        }
        Err(StoreError::Busy { waited_ms: 0, holder: None })
    }

    fn estimate(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        let Some(of) = PrunedThread::read(self, thread)? else { return Ok(Pruned::default()) };
        let mut total = Pruned::default();
        for point in due(&of, what).iter().filter_map(|spot| of.points.get(spot)) {
            total.add(point.content()?);
            total.checkpoints += u64::from(!point.of.record.pruned);
        }
        Ok(total)
    }
}

/// Returns the places that would go.
fn due(of: &PrunedThread, what: PruneTarget<'_>) -> BTreeSet<Spot> {
    match what {
        PruneTarget::Spans(spans) => {
            let held = of.held(&BTreeSet::new());
            let is_in = |(branch, ordinal): &Spot| {
                spans.iter().any(|span| span.contains(branch.cast_unsigned(), ordinal.cast_unsigned()))
            };
            let points = of.points.iter().filter(|(spot, point)| !point.of.record.pruned && is_in(spot));
            points.map(|(spot, _)| *spot).filter(|spot| !held.contains(spot)).collect()
        }
        PruneTarget::Namespaces(namespaces) => {
            let gone: BTreeSet<i64> =
                of.removable(namespaces).iter().filter_map(|path| Some(of.namespaces.get(*path)?.number)).collect();
            of.points.iter().filter(|(_, point)| gone.contains(&point.of.namespace)).map(|(spot, _)| *spot).collect()
        }
    }
}

/// Runs statements if the thread is as it was read. Returns whether it was.
fn write(
    backend: &PostgresBackend,
    of: &PrunedThread,
    queries: Vec<(&'static str, Vec<Param>)>,
) -> Result<bool, StoreError> {
    let token = Param::Int(Some(IdSource::new().random().cast_signed()));
    let number = Param::Int(Some(of.number));
    let change = [token.clone(), number.clone(), Param::Int(Some(of.change))];
    let mut all = vec![PgQuery::new(prune_sql::CHANGE, change)];
    for (sql, params) in queries {
        let mut own = vec![token.clone(), number.clone()];
        own.extend(params);
        all.push(PgQuery::new(sql, own));
    }
    let lanes = Arc::clone(&backend.client.lanes);
    backend.client.wait(async move {
        let answers = lanes.write_beside(&all).await.map_err(write_error)?;
        Ok(!answers[0].is_empty())
    })
}

/// A statement with its parameters but the first two.
type PruneStatements = Vec<(&'static str, Vec<Param>)>;

/// What a pruning takes away.
#[derive(Default)]
struct Reductions {
    reduced: Vec<Reduced>,
    /// Place, channel and position.
    items: Vec<(Spot, String, i64)>,
    passed: Vec<Spot>,
    timers: Vec<CheckpointId>,
    report: Pruned,
}

/// A checkpoint after a pruning.
struct Reduced {
    spot: Spot,
    metadata: Option<String>,
    exact: Option<Vec<u8>>,
    drops_tasks: bool,
    consumed: Option<Vec<u8>>,
    changes: Vec<(String, i64, i16, Vec<u8>)>,
}

/// Plans the pruning of places, and reduces what was pruned before on their branches.
fn reductions(of: &PrunedThread, due: &BTreeSet<Spot>) -> Result<(PruneStatements, Pruned), StoreError> {
    let branches: BTreeSet<i64> = due.iter().map(|(branch, _)| *branch).collect();
    let mut all = Reductions::default();
    for branch in branches {
        let points: Vec<&PrunedPoint> =
            of.points.range((branch, i64::MIN)..=(branch, i64::MAX)).map(|(_, point)| point).collect();
        let is_pruned = |point: &PrunedPoint| {
            point.of.record.pruned || due.contains(&(point.of.place.branch, point.of.place.ordinal))
        };
        // What the kept checkpoint after a pruned one overwrites: channels, and positions with ranges.
        let mut shadows = Shadows::default();
        for (at, point) in points.iter().enumerate().rev() {
            if is_pruned(point) {
                let child_is_pruned = points.get(at + 1).is_some_and(|child| is_pruned(child));
                let parent_is_kept = match at.checked_sub(1) {
                    Some(parent) => !is_pruned(points[parent]),
                    None => point.of.record.parent.is_some(),
                };
                all.reduce(point, &shadows, (child_is_pruned, parent_is_kept))?;
            } else {
                shadows = Shadows::default();
            }
            shadows.add(point);
        }
    }
    all.report.checkpoints = due.len() as u64;
    let report = all.report;
    Ok((if due.is_empty() { Vec::new() } else { all.statements() }, report))
}

/// What later checkpoints of a branch, up to the next kept one, have written.
#[derive(Default)]
struct Shadows {
    channels: BTreeSet<String>,
    positions: BTreeMap<String, BTreeSet<i64>>,
    ranges: Vec<(String, i64, i64)>,
}

impl Shadows {
    fn add(&mut self, point: &PrunedPoint) {
        self.channels.extend(point.changes.channels.iter().cloned());
        for item in &point.items {
            self.positions.entry(item.channel.clone()).or_default().insert(item.position);
        }
        self.ranges.extend(point.ranges.iter().cloned());
    }

    fn hides(&self, channel: &str, position: i64) -> bool {
        self.positions.get(channel).is_some_and(|positions| positions.contains(&position))
            || self.ranges.iter().any(|(of, first, last)| of == channel && (*first..=*last).contains(&position))
    }
}

impl Reductions {
    /// Reduces a checkpoint to its record and what the next kept one shows.
    fn reduce(
        &mut self,
        point: &PrunedPoint,
        shadows: &Shadows,
        (child_is_pruned, parent_is_kept): (bool, bool),
    ) -> Result<(), StoreError> {
        let (spot, record) = ((point.of.place.branch, point.of.place.ordinal), &point.of.record);
        let before = point.content()?;
        let mut left = PrunedPoint {
            of: point.of.clone(),
            changes: crate::rows::PgChanges::default(),
            consumed: if parent_is_kept { point.consumed.clone() } else { Vec::new() },
            items: Vec::new(),
            ranges: Vec::new(),
            writes: Vec::new(),
        };
        for (channel, version, kind, content) in point.changes.each().filter(|(of, ..)| !shadows.channels.contains(*of))
        {
            left.changes.channels.push(channel.to_owned());
            left.changes.versions.push(version.cast_signed());
            left.changes.kinds.push(kind);
            left.changes.contents.push(content.to_vec());
        }
        for item in point.items.iter().filter(|item| item.payload.is_some()) {
            match shadows.hides(&item.channel, item.position) {
                true => self.items.push((spot, item.channel.clone(), item.position)),
                false => left.items.push(thread::PutItem {
                    payload: item.payload.clone(),
                    channel: item.channel.clone(),
                    position: item.position,
                }),
            }
        }
        let after = left.content()?;
        self.report.values += before.values - after.values;
        self.report.bytes += before.bytes - after.bytes;
        let metadata = pruned_metadata(record.metadata.as_deref());
        let texts = [record.app_version.as_deref(), metadata.as_deref()];
        let has_nul = texts.iter().flatten().any(|text| text.contains('\0'));
        let changes = left.changes.each().map(|(channel, version, kind, content)| {
            (channel.to_owned(), version.cast_signed(), kind, content.to_vec())
        });
        let inline = |of: &Vec<_>| {
            packed(|to| {
                to.writes(of, &mut |to, _, payload| {
                    to.0.push(INLINE);
                    to.payload(payload);
                })
            })
        };
        self.reduced.push(Reduced {
            spot,
            exact: has_nul.then(|| packed(|to| texts.iter().for_each(|text| to.optional_text(*text)))),
            metadata: metadata.as_deref().map(crate::rows::column_text),
            drops_tasks: child_is_pruned,
            consumed: Some(&left.consumed).filter(|consumed| !consumed.is_empty()).map(inline),
            changes: changes.collect(),
        });
        self.passed.push(spot);
        self.timers.push(record.point.checkpoint);
        Ok(())
    }

    fn statements(self) -> PruneStatements {
        let spots = |of: &mut dyn Iterator<Item = Spot>| -> [Param; 2] {
            let (branches, ordinals): (Vec<_>, Vec<_>) =
                of.map(|(branch, ordinal)| (Some(branch), Some(ordinal))).unzip();
            [Param::Ints(branches), Param::Ints(ordinals)]
        };
        let mut end = 0;
        let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
        for of in &self.reduced {
            firsts.push(Some(end + 1));
            end += of.changes.len() as i64;
            lasts.push(Some(end));
        }
        let changes: Vec<_> = self.reduced.iter().flat_map(|of| &of.changes).collect();
        let mut reduce: Vec<Param> = spots(&mut self.reduced.iter().map(|of| of.spot)).into();
        reduce.extend([
            Param::Texts(self.reduced.iter().map(|of| of.metadata.clone()).collect()),
            Param::Blobs(self.reduced.iter().map(|of| of.exact.clone()).collect()),
            Param::Bools(self.reduced.iter().map(|of| Some(of.drops_tasks)).collect()),
            Param::Blobs(self.reduced.iter().map(|of| of.consumed.clone()).collect()),
            Param::Ints(firsts),
            Param::Ints(lasts),
            Param::Int(Some(end)),
            Param::Texts(changes.iter().map(|of| Some(of.0.clone())).collect()),
            Param::Blobs(changes.iter().map(|of| Some(pack_change(of.1, of.2, &of.3))).collect()),
        ]);
        let mut items: Vec<Param> = spots(&mut self.items.iter().map(|of| of.0)).into();
        items.push(Param::Texts(self.items.iter().map(|of| Some(of.1.clone())).collect()));
        items.push(Param::Ints(self.items.iter().map(|of| Some(of.2)).collect()));
        let timers = Param::Blobs(self.timers.iter().map(|id| Some(id.as_bytes().to_vec())).collect());
        vec![
            (prune_sql::REDUCE, reduce),
            (prune_sql::DELETE_ITEMS, items),
            (prune_sql::DELETE_TASK_WRITES, spots(&mut self.passed.into_iter()).into()),
            (prune_sql::DELETE_TIMERS, vec![timers]),
        ]
    }
}

/// Plans the removal of namespaces as a whole.
fn removals(of: &PrunedThread, gone: &BTreeSet<&Namespace>) -> Result<(PruneStatements, Pruned), StoreError> {
    let numbers: BTreeSet<i64> = gone.iter().filter_map(|path| Some(of.namespaces.get(*path)?.number)).collect();
    let (mut report, mut branches) = (Pruned::default(), BTreeSet::new());
    for point in of.points.values().filter(|point| numbers.contains(&point.of.namespace)) {
        report.add(point.content()?);
        report.checkpoints += u64::from(!point.of.record.pruned);
        branches.insert(point.of.place.branch);
    }
    if numbers.is_empty() {
        return Ok((Vec::new(), report));
    }
    let ints = |of: &BTreeSet<i64>| Param::Ints(of.iter().map(|number| Some(*number)).collect());
    let params = vec![ints(&numbers), ints(&branches)];
    Ok((prune_sql::DELETIONS.iter().map(|sql| (*sql, params.clone())).collect(), report))
}
