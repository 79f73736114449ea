//! How far a command has come, on a terminal alone.

use std::path::Path;

use indicatif::ProgressBar;

use crate::cli::output::progress;

/// Where the end is known: how much there is, the rate, and the time left.
const BAR: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} left";
/// Where it is not, as of standard input.
const SPINNER: &str = "{msg} {spinner} {bytes} {bytes_per_sec} in {elapsed}";

/// Bytes read of these files. A pipe does not tell how much is to come.
pub(super) fn reading(paths: &[&Path]) -> ProgressBar {
    let file_bytes = |path: &&Path| {
        let metadata = std::fs::metadata(path).ok().filter(|_| *path != Path::new("-"));
        metadata.filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
    };
    bar("reading", paths.iter().map(file_bytes).sum())
}

/// Bytes of objects that are stored.
pub(super) fn storing(bytes: u64) -> ProgressBar {
    bar("storing", Some(bytes))
}

fn bar(message: &'static str, bytes: Option<u64>) -> ProgressBar {
    progress(bytes, if bytes.is_some() { BAR } else { SPINNER }).with_message(message)
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::mpsc::{Sender, channel},
        time::Duration,
    };

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal that passes on what is written to it.
    #[derive(Debug)]
    struct Written(Sender<String>);

    impl TermLike for Written {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.send(text.to_owned()).map_err(io::Error::other)
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shown(bytes: Option<u64>) -> String {
        let (written, seen) = channel();
        let bar = bar("reading", bytes);
        bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(Written(written))));
        bar.set_elapsed(Duration::from_secs(2));
        bar.inc(1 << 20);
        bar.tick();
        seen.try_iter().collect()
    }

    #[test]
    fn a_bar_shows_rate_and_time_left_and_without_an_end_the_rate_alone() {
        let known = shown(Some(4 << 20));
        assert!(known.contains("1.00 MiB/4.00 MiB") && known.contains("/s") && known.contains(" left"), "{known}");
        let unknown = shown(None);
        assert!(unknown.contains("1.00 MiB") && unknown.contains("/s") && !unknown.contains("left"), "{unknown}");
    }

    #[test]
    fn the_end_is_known_of_files_alone() {
        let folder = testkit::folder();
        let file = folder.path().join("ids");
        std::fs::write(&file, "1\n2\n").unwrap();
        let cases: [(&[&Path], Option<u64>); 4] = [
            (&[&file, &file], Some(8)),
            (&[&file, Path::new("-")], None),
            (&[Path::new("/dev/null")], None),
            (&[&folder.path().join("nowhere")], None),
        ];
        for (paths, bytes) in cases {
            assert_eq!(reading(paths).length(), bytes, "{paths:?}");
        }
    }
}
