//! The stored file of an older format, which workloads migrate.

use std::sync::OnceLock;
use std::time::Duration;

use annals::store::Store;

use crate::cuts::lay;
use crate::disk::Image;
use crate::log::StoreFile;
use crate::observe::{self, Deadline, StoreView};
use crate::trace::ScratchFolder;

/// The file of format 1.
const FORMAT_1: &[u8] = include_bytes!("../../../tests/compat/format-1.db");

/// Returns the files before a migration.
pub(crate) fn image() -> Image {
    let mut image = Image::default();
    image[StoreFile::Main as usize] = Some(FORMAT_1.to_vec());
    image
}

/// Returns the files before a migration, and the content that a store shows after one without an interruption. The
/// tests of the engine compare it with the content that the last build of format 1 showed.
pub(crate) fn file() -> Result<(Image, StoreView), String> {
    static SHOWN: OnceLock<Result<StoreView, String>> = OnceLock::new();
    let shown = SHOWN.get_or_init(|| {
        let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
        lay(scratch.path(), &image())?;
        let store = Store::open(scratch.store()).map_err(|error| error.to_string())?;
        observe::everything(&store, Deadline::after(Duration::from_secs(300))).map_err(|error| error.to_string())
    });
    Ok((image(), shown.clone()?))
}
