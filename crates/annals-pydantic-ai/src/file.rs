//! Files in messages: bytes, URLs, and files that a provider stores.
//!
//! *Absent:* fetching and uploading.

use super::macros::{record, serde_impls, words};
use super::mime;
use super::wire::{DIGEST, Wire, WireReader, object_of};
use crate::base64;
use crate::hash::{sha1_hex, sha256_hex};
use annals_base::DefaultSource;
use annals_base::{Map, Value};
use annals_messages::internal::json_write;

/// BinaryData; base64 in JSON, read in either alphabet, written in the URL-safe one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct BinaryData(pub Vec<u8>);

impl Wire for BinaryData {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let read = value.as_str().and_then(base64::decode);
        read.map(Self).or_else(|| reader.fail("base64", &value))
    }

    fn write(&self) -> Value {
        base64::encode(&self.0).into()
    }
}

/// Returns the short name of a file: six digits of the SHA-1 hash of its bytes, or of where it is.
pub(super) fn short_name(bytes: &[u8]) -> String {
    sha1_hex(bytes)[..6].to_owned()
}

record! {
    /// A file that is held in the message (`BinaryContent`).
    pub struct Binary {
        /// The bytes.
        pub data: BinaryData,
        /// The media type.
        pub media_type: String,
        /// Parameters for the provider.
        pub vendor_metadata: Option<Map>,
    } [kind = "binary"] {
        /// The short name by which a text refers to the file; made from the bytes if none is given.
        pub identifier: String = |_| Some(String::new()),
    }
    before null_is_empty;
    after name_binary;
}

/// A null identifier counts as absent.
fn null_is_empty(map: &mut Map, _: &mut WireReader<'_>) {
    if map.get("identifier").is_some_and(Value::is_null) {
        map.shift_remove("identifier");
    }
}

fn name_binary(binary: &mut Binary, _: &mut Map, _: &mut WireReader<'_>) {
    if binary.identifier.is_empty() {
        binary.identifier = short_name(&binary.data.0);
    }
}

impl Binary {
    /// Returns the file with a name made from the bytes.
    pub fn new(data: impl Into<Vec<u8>>, media_type: impl Into<String>) -> Self {
        let data = data.into();
        let identifier = short_name(&data);
        Self { data: BinaryData(data), media_type: media_type.into(), vendor_metadata: None, identifier }
    }
}

words! {
    /// The kind of file behind a URL.
    pub enum UrlKind {
        /// An image.
        Image = "image-url",
        /// Audio.
        Audio = "audio-url",
        /// A video.
        Video = "video-url",
        /// A document.
        Document = "document-url",
    }
}

/// The choice between passing a URL to the provider and downloading the file first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ForceDownload {
    /// Only if the provider cannot.
    #[default]
    No,
    /// Always.
    Yes,
    /// Always, and local addresses are allowed.
    AllowLocal,
}

impl Wire for ForceDownload {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        if value.as_str() == Some("allow-local") {
            return Some(Self::AllowLocal);
        }
        bool::read(value, reader).map(|force| if force { Self::Yes } else { Self::No })
    }

    fn write(&self) -> Value {
        match self {
            Self::No => false.into(),
            Self::Yes => true.into(),
            Self::AllowLocal => "allow-local".into(),
        }
    }

    fn absent(_: &mut DefaultSource<'_>) -> Option<Self> {
        Some(Self::No)
    }
}

/// A file behind a URL (`ImageUrl`, `AudioUrl`, `VideoUrl`, `DocumentUrl`).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FileUrl {
    /// The kind of file.
    pub kind: UrlKind,
    /// The URL.
    pub url: String,
    /// The choice between passing the URL on and downloading the file.
    pub force_download: ForceDownload,
    /// Parameters for the provider.
    pub vendor_metadata: Option<Map>,
    /// The media type, guessed from the URL if it is absent; `None` if the guess fails.
    pub media_type: Option<String>,
    /// The short name by which a text refers to the file; made from the URL if none is given.
    pub identifier: String,
}

impl FileUrl {
    /// Returns the file with a guessed type and a name made from the URL.
    ///
    /// # Example: an image
    /// ```
    /// use annals_pydantic_ai::{FileUrl, UrlKind};
    ///
    /// let image = FileUrl::new(UrlKind::Image, "https://example.com/a.png");
    /// assert_eq!(image.media_type.as_deref(), Some("image/png"));
    /// ```
    pub fn new(kind: UrlKind, url: impl Into<String>) -> Self {
        let url = url.into();
        let (media_type, identifier) = (guess(kind, &url), short_name(url.as_bytes()));
        Self { kind, url, force_download: ForceDownload::No, vendor_metadata: None, media_type, identifier }
    }
}

fn guess(kind: UrlKind, url: &str) -> Option<String> {
    if kind == UrlKind::Video && mime::is_video_page(url) { Some("video/mp4".into()) } else { mime::guess(url) }
}

/// Takes the first given, non-empty text of two members.
fn given(map: &mut Map, names: &[&str], reader: &mut WireReader<'_>) -> Option<Option<String>> {
    reader.field::<Option<String>>(map, names, |_| Some(None)).map(|text| text.filter(|text| !text.is_empty()))
}

impl Wire for FileUrl {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let mut map = reader.object(value)?;
        let kind = reader.field::<UrlKind>(&mut map, &["kind"], |_| None);
        let url = reader.field::<String>(&mut map, &["url"], |_| None);
        let force_download = reader.field(&mut map, &["force_download"], ForceDownload::absent);
        let vendor_metadata = reader.field(&mut map, &["vendor_metadata"], Option::<Map>::absent);
        let media_type = given(&mut map, &["media_type", "_media_type"], reader);
        let identifier = given(&mut map, &["identifier", "_identifier"], reader);
        let (kind, url) = (kind?, url?);
        let media_type = media_type?.or_else(|| guess(kind, &url));
        let identifier = identifier?.unwrap_or_else(|| short_name(url.as_bytes()));
        let (force_download, vendor_metadata) = (force_download?, vendor_metadata?);
        Some(Self { kind, url, force_download, vendor_metadata, media_type, identifier })
    }

    fn write(&self) -> Value {
        let mut members = [
            ("url", self.url.write()),
            ("force_download", self.force_download.write()),
            ("vendor_metadata", self.vendor_metadata.write()),
            ("kind", self.kind.write()),
            ("media_type", self.media_type.write()),
            ("identifier", self.identifier.write()),
        ];
        Value::Map(object_of(&mut members))
    }
}

words! {
    /// The provider that stores an uploaded file.
    pub enum FileHost {
        /// Anthropic.
        Anthropic = "anthropic",
        /// OpenAI.
        OpenAi = "openai",
        /// Google.
        Google = "google",
        /// Google Cloud.
        GoogleCloud = "google-cloud",
        /// Google's Generative Language API.
        GoogleGla = "google-gla",
        /// Google Vertex AI.
        GoogleVertex = "google-vertex",
        /// Amazon Bedrock.
        Bedrock = "bedrock",
        /// xAI.
        Xai = "xai",
    }
}

record! {
    /// A file that a provider stores (`UploadedFile`).
    pub struct UploadedFile {
        /// The provider's id of the file.
        pub file_id: String,
        /// The provider that stores the file.
        pub provider_name: FileHost,
        /// Parameters for the provider.
        pub vendor_metadata: Option<Map>,
    } [kind = "uploaded-file"] {
        /// The media type, guessed from the id if it is absent.
        pub media_type: String | "_media_type" = |_| Some(UNKNOWN.into()),
        /// The short name by which a text refers to the file; made from the id if none is given.
        pub identifier: String | "_identifier" = |_| Some(String::new()),
    }
    before null_is_not_given;
    after complete_uploaded;
}

impl UploadedFile {
    /// Returns the file with a media type guessed from its id and an identifier made from it.
    pub fn new(file_id: impl Into<String>, provider_name: FileHost) -> Self {
        let file_id = file_id.into();
        let media_type = uploaded_media_type(&file_id);
        let identifier = short_name(file_id.as_bytes());
        Self { file_id, provider_name, vendor_metadata: None, media_type, identifier }
    }
}

fn uploaded_media_type(file_id: &str) -> String {
    mime::guess_uploaded(file_id).unwrap_or_else(|| "application/octet-stream".into())
}

/// Marks an absent media type; a media type never holds a NUL.
const UNKNOWN: &str = "\0";

fn null_is_not_given(map: &mut Map, _: &mut WireReader<'_>) {
    map.retain(|name, value| {
        !(value.is_null() && matches!(name.as_str(), "media_type" | "_media_type" | "identifier" | "_identifier"))
    });
}

fn complete_uploaded(file: &mut UploadedFile, _: &mut Map, _: &mut WireReader<'_>) {
    if file.media_type == UNKNOWN {
        file.media_type = uploaded_media_type(&file.file_id);
    }
    if file.identifier.is_empty() {
        file.identifier = short_name(file.file_id.as_bytes());
    }
    debug_assert!(file.media_type != UNKNOWN, "the mark of an absent media type is replaced");
}

/// Returns the hash by which a record names a file of this form.
pub(super) fn digest(form: &Value) -> String {
    sha256_hex(json_write(form, DIGEST).as_bytes())
}

/// A file, wherever it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum File {
    /// Held in the message.
    Binary(Binary),
    /// Behind a URL.
    Url(FileUrl),
    /// Stored by a provider.
    Uploaded(UploadedFile),
}

impl File {
    /// Returns the short name by which a text refers to the file.
    pub fn identifier(&self) -> &str {
        match self {
            Self::Binary(binary) => &binary.identifier,
            Self::Url(url) => &url.identifier,
            Self::Uploaded(file) => &file.identifier,
        }
    }

    /// Returns the value as JSON.
    pub fn to_value(&self) -> Value {
        self.write()
    }

    /// Returns the SHA-256 hash of the file's JSON, as `content_file_digests` records it; `None` for bytes.
    pub(crate) fn digest(&self) -> Option<String> {
        let (Self::Url(_) | Self::Uploaded(_)) = self else { return None };
        Some(digest(&self.to_value()))
    }

    /// Reads an object whose `kind` is that of a file; `None` if the object is not a valid file.
    pub(super) fn attempt(value: &Value, reader: &mut WireReader<'_>) -> Option<Self> {
        reader.attempt(|reader| Self::read(value.clone(), reader))
    }
}

impl Wire for File {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        match value.get("kind").and_then(Value::as_str) {
            Some("binary") => Binary::read(value, reader).map(Self::Binary),
            Some("uploaded-file") => UploadedFile::read(value, reader).map(Self::Uploaded),
            _ => FileUrl::read(value, reader).map(Self::Url),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Binary(binary) => binary.write(),
            Self::Url(url) => url.write(),
            Self::Uploaded(file) => file.write(),
        }
    }
}

serde_impls!(BinaryData, ForceDownload, FileUrl, File);
