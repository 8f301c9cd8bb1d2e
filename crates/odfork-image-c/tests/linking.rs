//! A program linked with libodfimage, in C and in C++, shared and static: does the header compile
//! without a warning, does every function do what it says?
//!
//! Owns: compiler calls. What is checked inside is in `programs/life.c`.

#[path = "../../../tests/shared/linking.rs"]
mod shared;

use std::process::Command;

use shared::{run, Kind, Library};

const LIBRARY: Library = Library {
    name: "odfimage",
    here: env!("CARGO_MANIFEST_DIR"),
    sources: &["src", "../odfork-image/src"],
};

fn lives(compiler: &str, language: &[&str], kind: Kind) {
    let out = tempfile::tempdir().unwrap();
    let program = out.path().join("life");
    LIBRARY.build("life.c", &program, compiler, &[language, &["-pthread"]].concat(), kind);
    let said = run(Command::new(&program)
        .arg(out.path())
        .env("LD_LIBRARY_PATH", LIBRARY.folder())
        .env_remove("LD_PRELOAD"));
    assert_eq!(String::from_utf8_lossy(&said.stdout), "ok\n");
}

#[test]
fn a_program_in_c() {
    lives("cc", &["-std=gnu11"], Kind::Shared);
}

#[test]
fn a_program_in_cpp() {
    lives("c++", &["-x", "c++", "-std=gnu++17"], Kind::Shared);
}

#[test]
fn a_program_with_the_static_library() {
    lives("cc", &["-std=gnu11"], Kind::Static);
}

/// Its caller does not choose its memory by a variable.
#[test]
fn a_set_user_id_program_takes_no_file_from_its_caller() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let out = tempfile::tempdir().unwrap();
    let program = out.path().join("trusted");
    LIBRARY.build("trusted.c", &program, "cc", &["-std=gnu11"], Kind::Static);
    for (path, mode) in [(out.path(), 0o755), (&program, 0o4755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let said = |user: Option<u32>| {
        let mut command = Command::new(&program);
        command.env("ODFORK_IMAGE_FILE", "/nowhere");
        user.map(|user| command.uid(user));
        String::from_utf8(run(&mut command).stdout).unwrap()
    };
    assert!(said(None).contains("/nowhere"), "{}", said(None));
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can become another user");
    }
    assert!(said(Some(65534)).contains("ODFORK_IMAGE_FILE is not set"), "{}", said(Some(65534)));
}

#[test]
fn the_shared_library_exports_nothing_else() {
    let exports = LIBRARY.exports();
    let strange: Vec<&String> =
        exports.iter().filter(|name| !name.starts_with("odfork_image_")).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn the_shared_library_names_itself() {
    LIBRARY.check_soname();
}
