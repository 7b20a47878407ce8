//! Transcripts for people: the messages at a point as Markdown, or as an HTML document in the look of `annals serve`.
//!
//! Invariant: one page of messages is in memory. *Absent:* the Markdown and the HTML of a message, which are those of
//! the pages.

use std::io::Write;

use annals::history::Snapshot;
use annals::store::ItemRange;
use annals_page::{PageError, markdown_folded, markdown_heading, markdown_message, write_document};
use annals_view::folded_messages;

use crate::errors::CommandFailure;

/// Messages that one read takes.
const PAGE: usize = 200;

/// Writes the messages of a channel as Markdown, and returns their number.
pub(crate) fn markdown(at: &Snapshot, channel: &str, out: &mut dyn Write) -> Result<u64, CommandFailure> {
    let title = at.point().thread.as_str();
    let facts = format!("{}, step {}, {}", at.id(), at.step(), at.created_at());
    write!(out, "{}\n{facts}\n", markdown_heading(title))?;
    // Removed items leave gaps between the positions.
    let mut positions = Vec::new();
    at.visit_items(channel, ItemRange::All, |row| {
        positions.push(row.position);
        Ok(())
    })?;
    let mut folded = folded_messages(at, channel)?;
    for page in positions.chunks(PAGE) {
        let (Some(first), Some(last)) = (page.first(), page.last()) else { continue };
        let items = at.items(channel, ItemRange::Positions(*first, last.saturating_add(1)))?;
        for (position, item) in page.iter().zip(items) {
            if let Some(folded) = folded.take_if(|folded| folded.positions().end <= *position) {
                write!(out, "\n{}", markdown_folded(&folded.summary))?;
            }
            write!(out, "\n{}", markdown_message(&item.to_json()))?;
        }
    }
    if let Some(folded) = folded {
        write!(out, "\n{}", markdown_folded(&folded.summary))?;
    }
    Ok(positions.len() as u64)
}

/// Writes the messages of a channel as an HTML document, and returns their number.
pub(crate) fn html(at: &Snapshot, channel: &str, out: &mut dyn Write) -> Result<u64, CommandFailure> {
    Ok(write_document(at, Some(channel), out)?)
}

impl From<PageError> for CommandFailure {
    fn from(error: PageError) -> Self {
        let message = error.to_string();
        match error {
            PageError::ForeignFile { .. } => Self::new(5, "file_exists", message).hint("choose another --site"),
            PageError::Bind { .. } => Self::usage(message).hint("--port 0 takes any free port"),
            PageError::Read(error) => error.into(),
            _ => Self::new(70, "io", message),
        }
    }
}
