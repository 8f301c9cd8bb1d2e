//! Which engine `odfork run` uses: what was asked for, by flag or variable, and what this kernel
//! can.
//!
//! Decides only; `launch` preloads, or switches the process. Settings that the engine does not know
//! are named here.

use std::ffi::OsStr;

use odfork_proc::cow_fork::Support;

use crate::cli::Run;
use crate::environment::Environment;
use crate::options::{ENGINE, FREEZE, IMAGE, IMAGE_DIR, MAX_PAUSE, PROFILE, THREADS};

/// Flags that only the library obeys.
const OF_THE_IMAGE: [(&str, &str); 6] = [
    ("--freeze", FREEZE),
    ("--image", IMAGE),
    ("--image-dir", IMAGE_DIR),
    ("--threads", THREADS),
    ("--profile", PROFILE),
    ("--max-pause", MAX_PAUSE),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Image,
    Kernel,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    pub engine: Engine,
    /// Something asked for that this engine does not do.
    pub note: Option<String>,
}

/// The value of a setting: the flag's, else the variable's.
pub fn value<'a>(
    request: &'a Run,
    environment: &'a Environment,
    variable: &str,
) -> Option<&'a OsStr> {
    let flag = request.settings.iter().find(|(name, _)| *name == variable);
    let value = flag.map(|(_, value)| value.as_os_str()).or_else(|| environment.get(variable));
    value.filter(|value| !value.is_empty())
}

/// The error: what was asked for, what stands in the way, how to go on.
pub fn choose(
    request: &Run,
    environment: &Environment,
    support: impl FnOnce() -> Support,
) -> Result<Choice, String> {
    let for_image: Vec<&str> = OF_THE_IMAGE
        .iter()
        .filter(|(_, variable)| value(request, environment, variable).is_some())
        .map(|(flag, _)| *flag)
        .collect();
    let image = Choice { engine: Engine::Image, note: None };
    match value(request, environment, ENGINE).and_then(OsStr::to_str) {
        Some("image") => Ok(image),
        Some("kernel") => {
            if let Some(obstacle) = support().obstacle() {
                return Err(format!(
                    "the engine 'kernel' cannot be had: {obstacle}; --engine image or auto goes on \
                     without it"
                ));
            }
            let note = (!for_image.is_empty()).then(|| {
                format!("the kernel engine has no image, so {} means nothing", for_image.join(", "))
            });
            Ok(Choice { engine: Engine::Kernel, note })
        }
        // A value that is a slip was warned about, and counts as none.
        _ if for_image.is_empty() && support().usable() => {
            Ok(Choice { engine: Engine::Kernel, note: None })
        }
        _ => Ok(image),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn chosen(settings: &[(&'static str, &str)], support: Support) -> Result<Choice, String> {
        let settings = settings.iter().map(|(name, value)| (*name, OsString::from(value)));
        let request = Run { settings: settings.collect(), quiet: false, words: Vec::new() };
        choose(&request, &Environment::empty(), || support)
    }

    fn engine(settings: &[(&'static str, &str)], support: Support) -> Engine {
        chosen(settings, support).unwrap().engine
    }

    #[test]
    fn auto_takes_the_kernel_where_it_can_and_nothing_of_the_image_is_asked_for() {
        for asked in [&[][..], &[(ENGINE, "auto")], &[(ENGINE, "")], &[(ENGINE, "kernle")]] {
            assert_eq!(engine(asked, Support::OnRequest), Engine::Kernel);
            assert_eq!(engine(asked, Support::Everyone), Engine::Kernel);
            assert_eq!(engine(asked, Support::Off), Engine::Image);
            assert_eq!(engine(asked, Support::Missing), Engine::Image);
        }
        let image = [(FREEZE, "eager"), (IMAGE, "huge"), (IMAGE_DIR, "d"), (PROFILE, "live")];
        for asked in image.into_iter().chain([(ENGINE, "image")]) {
            assert_eq!(engine(&[asked], Support::OnRequest), Engine::Image);
        }
    }

    #[test]
    fn the_kernel_engine_by_name_is_had_or_refused_in_one_line() {
        let asked = [(ENGINE, "kernel"), (FREEZE, "eager")];
        let choice = chosen(&asked, Support::OnRequest).unwrap();
        assert_eq!(choice.engine, Engine::Kernel);
        assert!(choice.note.is_some_and(|note| note.contains("--freeze")));
        assert_eq!(chosen(&asked[..1], Support::OnRequest).unwrap().note, None);
        for support in [Support::Missing, Support::Off] {
            let line = chosen(&asked, support).unwrap_err();
            assert!(line.contains("--engine image or auto") && !line.contains('\n'), "{line}");
        }
    }
}
