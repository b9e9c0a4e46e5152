//! Chooses the code that computes SHA-1: the fastest that the processor supports.

use crate::sha1::{Block, Digest, Message, Portable, digest_with};
#[cfg(target_arch = "x86_64")]
use crate::sha1_avx512::{Avx512, avx512_is_supported};
#[cfg(target_arch = "x86_64")]
use crate::sha1_simd::{Avx2, ShaNi, avx2_is_supported, sha_ni_is_supported};

/// The code that computes digests. All give the same result, at different speeds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Avx512,
    ShaNi,
    Avx2,
    Portable,
}

impl Backend {
    /// Fastest first, as measured (see benchmarks/test_kernels_bench.py).
    pub const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::ShaNi, Self::Portable];

    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::ShaNi => "sha-ni",
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
        }
    }

    pub fn detect() -> Self {
        Self::ALL.into_iter().find(|backend| backend.is_supported()).unwrap_or(Self::Portable)
    }

    #[cfg(target_arch = "x86_64")]
    pub fn is_supported(self) -> bool {
        match self {
            Self::Avx512 => avx512_is_supported(),
            Self::ShaNi => sha_ni_is_supported(),
            Self::Avx2 => avx2_is_supported(),
            Self::Portable => true,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_supported(self) -> bool {
        self == Self::Portable
    }

    /// `messages` are sorted by their number of blocks. An unsupported backend is replaced by the portable one.
    pub fn digest(self, arena: &[Block], messages: &[Message], out: &mut [Digest]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 if self.is_supported() => digest_with::<16, Avx512>(arena, messages, out),
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi if self.is_supported() => digest_with::<2, ShaNi>(arena, messages, out),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 if self.is_supported() => digest_with::<8, Avx2>(arena, messages, out),
            _ => digest_with::<1, Portable>(arena, messages, out),
        }
    }
}
