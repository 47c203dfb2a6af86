// SPDX-License-Identifier: Apache-2.0
//! Stand-in for `libz-ng-sys` over the pure-Rust `libz-rs-sys`.
//!
//! Owns: the names and the `z_stream` layout that flate2 expects of zlib-ng, forwarded call by call.
//! Must not know: anything of Sluice. It exists because zlib-ng's own build script needs cmake.
#![allow(non_camel_case_types, non_snake_case, unsafe_code, clippy::missing_safety_doc)]

use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use libz_rs_sys as real;
pub use real::{
    Z_BEST_COMPRESSION, Z_BEST_SPEED, Z_BLOCK, Z_BUF_ERROR, Z_DATA_ERROR, Z_DEFAULT_COMPRESSION,
    Z_DEFAULT_STRATEGY, Z_DEFLATED, Z_ERRNO, Z_FINISH, Z_FULL_FLUSH, Z_MEM_ERROR, Z_NEED_DICT,
    Z_NO_COMPRESSION, Z_NO_FLUSH, Z_OK, Z_PARTIAL_FLUSH, Z_STREAM_END, Z_STREAM_ERROR, Z_SYNC_FLUSH,
    Z_VERSION_ERROR,
};

pub type uInt = c_uint;
pub type uLong = c_ulong;
pub type voidpf = *mut c_void;
pub type alloc_func = unsafe extern "C" fn(voidpf, uInt, uInt) -> voidpf;
pub type free_func = unsafe extern "C" fn(voidpf, voidpf);

pub enum internal_state {}

/// Same layout as `libz_rs_sys::z_stream`; the allocation functions are always set by flate2.
#[repr(C)]
pub struct z_stream {
    pub next_in: *mut u8,
    pub avail_in: uInt,
    pub total_in: c_ulong,
    pub next_out: *mut u8,
    pub avail_out: uInt,
    pub total_out: c_ulong,
    pub msg: *mut c_char,
    pub state: *mut internal_state,
    pub zalloc: alloc_func,
    pub zfree: free_func,
    pub opaque: voidpf,
    pub data_type: c_int,
    pub adler: c_ulong,
    pub reserved: c_ulong,
}
pub type z_streamp = *mut z_stream;

// A stream is handed across as a pointer: size, alignment and every field must sit at the same place.
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<z_stream>() == size_of::<real::z_stream>());
    assert!(align_of::<z_stream>() == align_of::<real::z_stream>());
    assert!(offset_of!(z_stream, total_in) == offset_of!(real::z_stream, total_in));
    assert!(offset_of!(z_stream, next_out) == offset_of!(real::z_stream, next_out));
    assert!(offset_of!(z_stream, total_out) == offset_of!(real::z_stream, total_out));
    assert!(offset_of!(z_stream, msg) == offset_of!(real::z_stream, msg));
    assert!(offset_of!(z_stream, state) == offset_of!(real::z_stream, state));
    assert!(offset_of!(z_stream, zalloc) == offset_of!(real::z_stream, zalloc));
    assert!(offset_of!(z_stream, opaque) == offset_of!(real::z_stream, opaque));
    assert!(offset_of!(z_stream, adler) == offset_of!(real::z_stream, adler));
};

/// One forwarding function per line: name, its arguments after the stream, nothing else.
macro_rules! forward {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        pub unsafe extern "C" fn $name(strm: z_streamp, $($arg: $ty),*) -> c_int {
            // SAFETY: the layouts are the same (checked above); the caller keeps zlib's contract.
            unsafe { real::$name(strm.cast(), $($arg),*) }
        }
    )*};
}

forward! {
    deflate(flush: c_int);
    deflateEnd();
    deflateReset();
    deflateParams(level: c_int, strategy: c_int);
    deflateSetDictionary(dictionary: *const u8, len: uInt);
    inflate(flush: c_int);
    inflateEnd();
    inflateReset();
    inflateReset2(window_bits: c_int);
    inflateSetDictionary(dictionary: *const u8, len: uInt);
    inflateInit2_(window_bits: c_int, version: *const c_char, stream_size: c_int);
}

#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn deflateInit2_(
    strm: z_streamp,
    level: c_int,
    method: c_int,
    window_bits: c_int,
    mem_level: c_int,
    strategy: c_int,
    version: *const c_char,
    stream_size: c_int,
) -> c_int {
    // SAFETY: as in `forward!`.
    unsafe {
        real::deflateInit2_(
            strm.cast(),
            level,
            method,
            window_bits,
            mem_level,
            strategy,
            version,
            stream_size,
        )
    }
}

pub fn zlibVersion() -> *const c_char {
    real::zlibVersion()
}
