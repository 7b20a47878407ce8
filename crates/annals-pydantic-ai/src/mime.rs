//! Guesses the media type of a file from its URL.
//!
//! The table is that of the specification: the types of Python's `mimetypes` on a system without a table of its own,
//! and those that PydanticAI adds. *Absent:* reading the file.

/// Extensions and their types, in the order of the extensions.
#[rustfmt::skip]
const TYPES: [(&str, &str); 133] = [
    ("3g2", "audio/3gpp2"), ("3gp", "audio/3gpp"), ("3gpp", "audio/3gpp"), ("3gpp2", "audio/3gpp2"),
    ("aac", "audio/aac"), ("adts", "audio/aac"), ("ai", "application/postscript"), ("aif", "audio/x-aiff"),
    ("aifc", "audio/x-aiff"), ("aiff", "audio/aiff"), ("asciidoc", "text/x-asciidoc"), ("ass", "audio/aac"),
    ("au", "audio/basic"), ("avi", "video/x-msvideo"), ("avif", "image/avif"), ("bcpio", "application/x-bcpio"),
    ("bin", "application/octet-stream"), ("bmp", "image/bmp"), ("cpio", "application/x-cpio"), ("css", "text/css"),
    ("csv", "text/csv"), ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"), ("dvi", "application/x-dvi"),
    ("eml", "message/rfc822"), ("eps", "application/postscript"), ("etx", "text/x-setext"), ("flac", "audio/flac"),
    ("flv", "video/x-flv"), ("gif", "image/gif"), ("gtar", "application/x-gtar"), ("h5", "application/x-hdf5"),
    ("hdf", "application/x-hdf"), ("heic", "image/heic"), ("heif", "image/heif"), ("htm", "text/html"),
    ("html", "text/html"), ("ico", "image/vnd.microsoft.icon"), ("ief", "image/ief"), ("jpe", "image/jpeg"),
    ("jpeg", "image/jpeg"), ("jpg", "image/jpeg"), ("json", "application/json"), ("ksh", "text/plain"),
    ("latex", "application/x-latex"), ("m1v", "video/mpeg"), ("m3u8", "application/vnd.apple.mpegurl"),
    ("man", "application/x-troff-man"), ("md", "text/markdown"), ("mdx", "text/markdown"),
    ("me", "application/x-troff-me"), ("mht", "message/rfc822"), ("mhtml", "message/rfc822"),
    ("mkv", "video/x-matroska"), ("mov", "video/quicktime"), ("movie", "video/x-sgi-movie"), ("mp2", "audio/mpeg"),
    ("mp3", "audio/mpeg"), ("mp4", "video/mp4"), ("mpa", "video/mpeg"), ("mpe", "video/mpeg"), ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"), ("ms", "application/x-troff-ms"), ("n3", "text/n3"), ("nc", "application/x-netcdf"),
    ("nq", "application/n-quads"), ("nt", "application/n-triples"), ("nws", "message/rfc822"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"), ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"), ("p7c", "application/pkcs7-mime"), ("pbm", "image/x-portable-bitmap"),
    ("pdf", "application/pdf"), ("pgm", "image/x-portable-graymap"), ("png", "image/png"),
    ("pnm", "image/x-portable-anymap"), ("ppa", "application/vnd.ms-powerpoint"), ("ppm", "image/x-portable-pixmap"),
    ("pps", "application/vnd.ms-powerpoint"), ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"), ("pwz", "application/vnd.ms-powerpoint"), ("py", "text/x-python"),
    ("pyc", "application/x-python-code"), ("pyo", "application/x-python-code"), ("qt", "video/quicktime"),
    ("ra", "audio/x-pn-realaudio"), ("ras", "image/x-cmu-raster"), ("rgb", "image/x-rgb"), ("rtf", "application/rtf"),
    ("rtx", "text/richtext"), ("shar", "application/x-shar"), ("snd", "audio/basic"),
    ("so", "application/octet-stream"), ("src", "application/x-wais-source"), ("srt", "text/plain"),
    ("sv4cpio", "application/x-sv4cpio"), ("sv4crc", "application/x-sv4crc"), ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"), ("texi", "application/x-texinfo"), ("texinfo", "application/x-texinfo"),
    ("three_gp", "video/3gpp"), ("tif", "image/tiff"), ("tiff", "image/tiff"), ("toml", "application/toml"),
    ("trig", "application/trig"), ("tsv", "text/tab-separated-values"), ("txt", "text/plain"),
    ("ustar", "application/x-ustar"), ("vtt", "text/vtt"), ("wasm", "application/wasm"), ("wav", "audio/wav"),
    ("webm", "video/webm"), ("webmanifest", "application/manifest+json"), ("webp", "image/webp"),
    ("wiz", "application/msword"), ("wmv", "video/x-ms-wmv"), ("xbm", "image/x-xbitmap"),
    ("xlb", "application/vnd.ms-excel"), ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"), ("xml", "application/xml"),
    ("xpdl", "application/xml"), ("xpm", "image/x-xpixmap"), ("xwd", "image/x-xwindowdump"),
    ("yaml", "application/yaml"), ("yml", "application/yaml"), ("zip", "application/zip"),
];

/// Extensions that stand for two.
const SUFFIXES: [(&str, &str); 6] = [
    ("svgz", ".svg.gz"),
    ("tgz", ".tar.gz"),
    ("taz", ".tar.gz"),
    ("tz", ".tar.gz"),
    ("tbz2", ".tar.bz2"),
    ("txz", ".tar.xz"),
];

/// Extensions of compression formats, which are skipped. Their case matters.
const ENCODINGS: [&str; 5] = ["gz", "Z", "bz2", "xz", "br"];

/// Hosts whose pages are videos.
const VIDEO_HOSTS: [&str; 4] = ["youtu.be", "youtube.com", "www.youtube.com", "m.youtube.com"];

/// Splits a name before its extension; leading dots of the last segment begin none.
fn split_extension(text: &str) -> Option<(&str, &str)> {
    let segment = text.rfind('/').map_or(0, |at| at + 1);
    let dot = text.rfind('.').filter(|dot| *dot > segment)?;
    let named = text[segment..dot].bytes().any(|byte| byte != b'.');
    named.then(|| (&text[..dot], &text[dot + 1..]))
}

fn type_of(extension: &str) -> Option<&'static str> {
    let find = |extension: &str| TYPES.binary_search_by_key(&extension, |(name, _)| name).ok().map(|at| TYPES[at].1);
    find(extension).or_else(|| find(&extension.to_lowercase()))
}

/// Splits a URL after its scheme, which has no slash.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    url.split_once(':').filter(|(scheme, _)| !scheme.is_empty() && !scheme.contains('/'))
}

/// Returns the type that the text of a URL shows: a `data:` URL declares one, any other has the extension after the
/// last dot of its last segment, query and fragment included.
pub(super) fn guess(url: &str) -> Option<String> {
    let rest = match split_scheme(url) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("data") => {
            let (declared, _) = rest.split_once(',')?;
            let kind = declared.split(';').next().unwrap_or("");
            let is_type = kind.contains('/') && !kind.contains('=');
            return Some(if is_type { kind } else { "text/plain" }.to_owned());
        }
        Some((_, rest)) => rest,
        None => url,
    };
    let (base, extension) = split_extension(rest)?;
    let lower = extension.to_lowercase();
    let unfolded = SUFFIXES.iter().find(|(suffix, _)| *suffix == lower).map(|(_, long)| format!("{base}{long}"));
    let name = unfolded.as_deref().unwrap_or(rest);
    let (base, extension) = split_extension(name)?;
    let packed = ENCODINGS.contains(&extension);
    let extension = if packed { split_extension(base)?.1 } else { extension };
    type_of(extension).map(str::to_owned)
}

/// Splits a URL into its scheme, its authority (of `//authority`) and what follows.
fn split_url(url: &str) -> (&str, &str, &str) {
    let is_scheme = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let (scheme, rest) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("", url));
    match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            (scheme, &rest[..end], &rest[end..])
        }
        None => (scheme, "", rest),
    }
}

/// Returns the scheme of a URL in lower case; empty if there is none. Spaces before it do not count.
pub(super) fn scheme(url: &str) -> String {
    split_url(url.trim_start_matches(|c: char| c <= ' ')).0.to_lowercase()
}

/// Returns whether the host of a URL is one whose pages are videos.
pub(super) fn is_video_page(url: &str) -> bool {
    let (_, authority, _) = split_url(url);
    let host = authority.rsplit('@').next().unwrap_or("").split(':').next().unwrap_or("").to_lowercase();
    VIDEO_HOSTS.contains(&host.as_str())
}

/// Returns the type that the id of an uploaded file shows, if it is read as a URL and its path has an extension.
pub(super) fn guess_uploaded(file_id: &str) -> Option<String> {
    let (scheme, _, rest) = split_url(file_id);
    let path = rest.split(['?', '#']).next().unwrap_or("");
    let path = match scheme.to_lowercase().as_str() {
        "" | "http" | "https" | "ftp" | "sftp" => {
            let segment = path.rfind('/').unwrap_or(0);
            let end = path[segment..].find(';').map_or(path.len(), |at| segment + at);
            &path[..end]
        }
        _ => path,
    };
    guess(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(TYPES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn types_are_guessed_from_the_text_of_a_url() {
        for (url, kind) in [
            ("https://x/a.tar.gz", Some("application/x-tar")),
            ("https://x/a.TAR.GZ", None),
            ("https://x/a.TGZ", Some("application/x-tar")),
            ("https://x/a.svgz", Some("image/svg+xml")),
            ("https://x/a.png.xz", Some("image/png")),
            ("https://x/a.PNG", Some("image/png")),
            ("https://x.png", Some("image/png")),
            ("x.png", Some("image/png")),
            ("C:\\a.png", Some("image/png")),
            ("data:;base64,xx", Some("text/plain")),
            ("data:image/png;charset=x,1", Some("image/png")),
            ("DATA:IMAGE/PNG,x", Some("IMAGE/PNG")),
            ("data:charset=utf,x", Some("text/plain")),
            ("data:text/html", None),
            ("https://x/a.gz", None),
            ("https://x/a.png?q=1", None),
            ("https://x/...png", None),
            ("https://x/.png", None),
            ("a.b/c", None),
            ("https://x/a.", None),
            ("", None),
        ] {
            assert_eq!(guess(url).as_deref(), kind, "{url}");
        }
        for (id, kind) in [
            ("gs://b/a.png?x=1", Some("image/png")),
            ("a.png;v=1", Some("image/png")),
            ("gs://b/a.PNG;v=1", None),
            ("s3://b.png", None),
            ("//h/a.png", Some("image/png")),
            ("a.b:c.png", Some("image/png")),
            ("data:image/png,x", None),
            ("file-1", None),
        ] {
            assert_eq!(guess_uploaded(id).as_deref(), kind, "{id}");
        }
    }

    #[test]
    fn pages_of_videos_are_known_by_their_host() {
        for url in ["https://youtu.be/x", "HTTPS://WWW.YouTube.com/x", "https://me@youtube.com:443/x"] {
            assert!(is_video_page(url), "{url}");
        }
        for url in ["https://www.youtu.be/x", "youtube.com/x", "https://m.youtu.be/x", "https://x/youtu.be"] {
            assert!(!is_video_page(url), "{url}");
        }
        assert_eq!(
            (scheme(" HTTPS://x"), scheme("x/y:z"), scheme("s3:")),
            ("https".into(), String::new(), "s3".into())
        );
    }
}
