//! A filter of the checkpoints of a history.

use crate::base::limits::{HISTORY_PAGE_ROWS, PAGE_ROWS_MAX};
use crate::base::{CheckpointId, Value, setters};
use crate::store::Source;
use crate::store::record::CheckpointRecord;

/// A filter of the checkpoints of a history. Everything is looked up in the records: no state is read for a checkpoint
/// that is not shown.
///
/// # Example
/// ```
/// use annals::history::HistoryFilter;
/// use annals::prelude::*;
/// use annals::store::Source;
///
/// #[derive(State, Clone, Default)]
/// struct Count { n: i64 }
///
/// # fn main() -> Result<()> {
/// let thread = Store::memory().thread("count")?;
/// for n in 0..3 {
///     thread.update(Count::update().n(n))?;
/// }
/// let updates = HistoryFilter::new().source(Source::Update).limit(1);
/// let newest = thread.history_with(updates)?.next().expect("there are three")?;
/// assert_eq!((newest.step(), newest.state::<Count>()?.n), (2, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    pub(crate) before: Option<CheckpointId>,
    pub(crate) limit: Option<usize>,
    only: Option<CheckpointId>,
    source: Option<Source>,
    step: Option<i64>,
    metadata: Vec<(String, Value)>,
}

impl HistoryFilter {
    /// Shows everything.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Shows only checkpoints that are older than this one.
        pub fn before(checkpoint: CheckpointId) { .before = Some(checkpoint) }

        /// Shows at most so many, the newest.
        pub fn limit(limit: usize) { .limit = Some(limit) }

        /// Shows only checkpoints of this source.
        pub fn source(source: Source) { .source = Some(source) }

        /// Shows only the superstep with this number.
        pub fn step(step: i64) { .step = Some(step) }

        /// Shows only checkpoints of runs whose metadata has this value under this name.
        pub fn metadata(name: impl Into<String>, value: impl Into<Value>) {
            .metadata.push((name.into(), value.into()))
        }
    }

    /// Shows only this checkpoint.
    pub fn only(mut self, checkpoint: CheckpointId) -> Self {
        self.only = Some(checkpoint);
        self.limit = self.limit.map_or(Some(1), |limit| Some(limit.min(1)));
        self
    }

    /// Returns the checkpoint to begin below: nothing newer is read.
    pub(crate) fn below(&self) -> Option<CheckpointId> {
        let number = |id: CheckpointId| u128::from_be_bytes(*id.as_bytes());
        let next = |id| CheckpointId::from_bytes(number(id).saturating_add(1).to_be_bytes());
        [self.before, self.only.map(next)].into_iter().flatten().min()
    }

    /// Returns the maximum number of records of a page: no more than are shown, if none is passed over.
    pub(crate) fn page_rows(&self) -> usize {
        let passes_over = self.source.is_some() || self.step.is_some() || !self.metadata.is_empty();
        match self.limit {
            Some(limit) if !passes_over => limit.clamp(1, PAGE_ROWS_MAX),
            _ => HISTORY_PAGE_ROWS,
        }
    }

    /// Returns whether neither this checkpoint nor an older one is shown.
    pub(crate) fn ends_before(&self, record: &CheckpointRecord) -> bool {
        self.only.is_some_and(|only| record.point.checkpoint < only)
    }

    pub(crate) fn shows(&self, record: &CheckpointRecord) -> bool {
        self.only.is_none_or(|only| only == record.point.checkpoint)
            && self.source.is_none_or(|source| source == record.source)
            && self.step.is_none_or(|step| step == record.step)
            && (self.metadata.is_empty() || self.fits_metadata(record))
    }

    fn fits_metadata(&self, record: &CheckpointRecord) -> bool {
        let text = record.metadata.as_deref().unwrap_or("{}");
        let Ok(metadata) = serde_json::from_str::<serde_json::Value>(text) else { return false };
        let has =
            |name: &str, value: &Value| metadata.get(name).is_some_and(|found| Value::from(found.clone()) == *value);
        self.metadata.iter().all(|(name, value)| has(name, value))
    }
}
