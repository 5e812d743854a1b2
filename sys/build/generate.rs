//! Runs bindgen over ROCm's headers, one output file for each entry of `allowlist::LIBRARIES`. Used by builds with the
//! feature `bindgen`, and so by `scripts/regenerate`, which writes the committed files.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use bindgen::{Builder, EnumVariation, Formatter, RustEdition, RustTarget};

#[path = "allowlist.rs"]
mod allowlist;

use allowlist::{DEFINES, LIBRARIES, Library};

/// ROCm's folder if `ROCM_PATH` is not set.
const DEFAULT_ROCM: &str = "/opt/rocm";

/// The Rust version that bindgen targets, older than the workspace's `rust-version`.
const RUST_MINOR: u64 = 85;

/// Writes `<module>.rs` for every library into `folder`.
pub(crate) fn write_to(folder: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-env-changed=ROCM_PATH");
    let include =
        PathBuf::from(env::var("ROCM_PATH").unwrap_or_else(|_| DEFAULT_ROCM.into())).join("include");
    if !include.join("hip/hip_runtime_api.h").is_file() {
        return Err(format!(
            "{}: no hip/hip_runtime_api.h there; set ROCM_PATH to a ROCm with headers, or build without the feature `bindgen`",
            include.display()
        )
        .into());
    }
    // An earlier build may have had other libraries.
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            fs::remove_file(path)?;
        }
    }
    for library in LIBRARIES {
        let bindings = generate(library, &include).map_err(|error| format!("{}: {error}", library.module))?;
        fs::write(folder.join(library.module).with_extension("rs"), bindings)?;
    }
    Ok(())
}

fn generate(library: &Library, include: &Path) -> Result<String, Box<dyn Error>> {
    let mut builder = Builder::default()
        .header_contents(
            &format!("{}.h", library.module),
            &library
                .headers
                .iter()
                .fold(String::new(), |text, header| text + "#include <" + header + ">\n"),
        )
        .clang_args(DEFINES)
        .rust_target(RustTarget::stable(RUST_MINOR, 0).map_err(|error| error.to_string())?)
        .rust_edition(RustEdition::Edition2024)
        .default_enum_style(EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        })
        .formatter(Formatter::Prettyplease)
        .use_core()
        .opaque_type("hipDeviceArch_t") // bit fields, whose accessors would be a tenth of the file
        .derive_default(true)
        .generate_comments(false)
        .merge_extern_blocks(true)
        .disable_header_comment();
    // The system's own folder stays where it is: moved to the front, it breaks the C++ library's includes.
    if include != Path::new("/usr/include") {
        builder = builder.clang_args(["-isystem", &include.display().to_string()]);
    }
    if library.cpp {
        builder = builder.clang_args(["-x", "c++", "-std=c++17"]);
    }
    if library.module != "hip" {
        // HIP's types are the same types in every library.
        builder = builder
            .blocklist_file(".*/include/hip/(.*_(api|types|common)\\.h|amd_detail/.*)")
            .blocklist_type("i?hipStream_t")
            .raw_line("use crate::hip::*;");
    }
    for functions in library.functions {
        builder = builder.allowlist_function(functions);
    }
    for types in library.types {
        builder = builder.allowlist_type(types);
    }
    for constants in library.constants {
        builder = builder.allowlist_var(constants);
    }
    let mut text = builder.generate()?.to_string();
    text.insert_str(
        0,
        "// Made by sys/scripts/regenerate from ROCm's headers; do not edit.\n\n",
    );
    // bindgen's type of enums with 64 bits, which on Windows has 32.
    text = text.replace("(pub ::core::ffi::c_ulong);", "(pub u64);");
    declare_table(&mut text, library)?;
    declare_status(&mut text, library)?;
    Ok(text)
}

/// Passes the declared functions to `table!` instead of to the linker.
fn declare_table(text: &mut String, library: &Library) -> Result<(), Box<dyn Error>> {
    const BLOCK: &str = "unsafe extern \"C\" {";
    if text.matches(BLOCK).count() != 1 {
        return Err("the functions are not in one extern block".into());
    }
    *text = text.replace(BLOCK, &format!("crate::table::table! {{\n    {};", library.table));
    Ok(())
}

/// Adds the names of the status type's constants.
fn declare_status(text: &mut String, library: &Library) -> Result<(), Box<dyn Error>> {
    let (status, success) = library.status;
    let mut names = Vec::new();
    for line in text.lines() {
        if let Some((name, value)) = line
            .trim()
            .strip_prefix("pub const ")
            .and_then(|line| line.split_once(": "))
            && value.starts_with(&format!("{status} = "))
        {
            names.push(name.to_owned());
        }
    }
    if !names.iter().any(|name| name == success) {
        return Err(format!("{status} has no {success}").into());
    }
    write!(
        text,
        "crate::status::status! {{\n    {status}, success: {success};\n"
    )?;
    for name in names {
        writeln!(text, "    {name},")?;
    }
    text.push_str("}\n");
    Ok(())
}
