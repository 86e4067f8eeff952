#!/bin/bash
# Compresses one file of reference data: pack.sh FILE [OUTPUT]; OUTPUT defaults to FILE.xz.
#
# xz is told the width of an element, so that the bytes of the exponents, which repeat, are modelled
# apart from the bytes of the mantissas, which do not: bf16 weights shrink to 67% (zstd -19: 80%),
# float32 logits to 80% (zstd -19: 90%). Blocks of quantized files have no such width.
set -euo pipefail
[[ $# -ge 1 && $# -le 2 ]] || { echo "usage: $0 FILE [OUTPUT]" >&2; exit 64; }
case $1 in
    *bf16.gguf) width=lc=3,lp=1,pb=1 ;;  # 2-byte elements
    *.gguf) width=lc=3,lp=0,pb=2 ;;      # plain xz
    *.f32) width=lc=1,lp=2,pb=2 ;;       # 4-byte elements
    *) echo "$0: $1: only .gguf and .f32 are known" >&2; exit 64 ;;
esac
xz --stdout --lzma2="preset=9e,$width" "$1" > "${2:-$1.xz}"
