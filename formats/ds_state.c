/*
 * ds_state.c: a run's parameter groups and optimizer values in the form that writers take (libckpt/map/state.h).
 */
#include "formats/deepspeed.h"

int ckpt_ds_state_make(ckpt_ds *ds)
{
    ckpt_state *state = NULL;

    return ckpt_state_new(&state, ds->map, "", ds->err);
}
