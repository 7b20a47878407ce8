//! A backend in memory.

use super::backend::{Backend, CheckReport, Ticket};
use super::batch::Batch;
use super::error::StoreError;
use super::query::{CheckpointQuery, ItemRange};
use super::record::{CheckpointRecord, ItemRow, Point, StateRecord, ThreadRecord, WriteRecord};
use crate::base::{Namespace, ThreadId};

/// A backend in memory.
#[derive(Debug, Default)]
pub struct MemoryBackend;

impl MemoryBackend {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self
    }
}

macro_rules! later {
    () => {
        Err(StoreError::ReadOnly)
    };
}

impl Backend for MemoryBackend {
    fn commit(&self, _: &Batch) -> Result<(), StoreError> {
        later!()
    }
    fn submit(&self, batch: Batch) -> Ticket {
        Ticket::settled(self.commit(&batch))
    }
    fn head(&self, _: &ThreadId, _: &Namespace) -> Result<Option<CheckpointRecord>, StoreError> {
        later!()
    }
    fn checkpoint(&self, _: &Point) -> Result<Option<CheckpointRecord>, StoreError> {
        later!()
    }
    fn checkpoints_by_prefix(&self, _: &ThreadId, _: &str, _: usize) -> Result<Vec<CheckpointRecord>, StoreError> {
        later!()
    }
    fn checkpoints(&self, _: &CheckpointQuery) -> Result<Vec<CheckpointRecord>, StoreError> {
        later!()
    }
    fn state(&self, _: &Point) -> Result<StateRecord, StoreError> {
        later!()
    }
    fn items(
        &self,
        _: &Point,
        _: &str,
        _: ItemRange,
        _: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        later!()
    }
    fn writes(&self, _: &Point) -> Result<Vec<WriteRecord>, StoreError> {
        later!()
    }
    fn threads(&self, _: Option<&ThreadId>, _: usize) -> Result<Vec<ThreadRecord>, StoreError> {
        later!()
    }
    fn namespaces(&self, _: &ThreadId) -> Result<Vec<Namespace>, StoreError> {
        later!()
    }
    fn check(&self) -> Result<CheckReport, StoreError> {
        later!()
    }
}
