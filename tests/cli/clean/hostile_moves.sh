# SPDX-License-Identifier: Apache-2.0
# A list of renames that came with somebody's folder reaches nothing outside of it.
mkdir -p out/.model.ckpt-partial/new real
echo mine >precious
echo theirs >out/.model.ckpt-partial/new/x
: >out/.model.ckpt-partial/journal
try() {
    printf -- "$1" >out/.model.ckpt-partial/moves
    ckpt clean -q -f out | grep -o "cannot move the replaced folder back"
    cat precious; ls -A . out real
}
try '-\0../precious\0was/0\0E'
try '=new/x\0../precious\0was/0\0E'
ln -s ../real out/link
try '+new/x\0link/x\0\0*\0\0\0E'
try '-\0/etc/passwd\0new/0\0E'
# Cut off, or of nothing known.
try '+new/x\0y'
try '?\0y\0\0E'
try ''
