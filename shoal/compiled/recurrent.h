/* Gated recurrent layers (GRU; Cho et al. 2014, as torch has it), forth and back through all steps of a batch, lane by
   lane: r and z are sigmoid, n = tanh(a_n + r g_n), where a is what the inputs give and g what the state h' before gives
   to the three, and h = n + z (h' - n). */

typedef struct {
    i64 lanes, steps, batch, inputs, width;
    i64 x_lane, x_step, x_row;       /* how far apart lanes, steps and rows of x lie */
    const float *x;                  /* [L][T][B][I] */
    const float *enter, *enter_bias; /* [L][3H][I], [L][3H]: from the inputs, and */
    const float *pass, *pass_bias;   /* [L][3H][H], [L][3H]: from the state before */
    float *states;                   /* [L][T][B][H] */
    float *kept;                     /* [L][T][5][H][P]: r, z, n, g_n and h */
    const float *slope;              /* [L][T][B][H], at the states */
    float *to_x;                     /* [L][T][B][I], or none */
    float *to_enter, *to_enter_bias, *to_pass, *to_pass_bias;
} Gru;

enum { RESET, UPDATE, NEW, GIVEN_NEW, STATE, KEPT };

INLINE vec magnitude(vec v) { return choose(~(v < 0), v) - choose(v < 0, v); }

INLINE vec either(ivec where, vec one, vec other) { return (vec)((where & (ivec)one) | (~where & (ivec)other)); }

/* What is no number stays none. */
INLINE vec sigmoid(vec v) {
    vec p = power(-magnitude(v));
    return either(v == v, either(v < 0, p, all(1)) / (p + 1.0f), v);
}

INLINE vec tangent(vec v) {
    vec p = power(-2.0f * magnitude(v)), found = (1.0f - p) / (1.0f + p);
    return either(v == v, either(v < 0, -found, found), v);
}

INLINE float *room(i64 numbers) { return aligned_alloc(64, (4 * numbers + 127) / 64 * 64); }

/* The states of all lanes. Gives 0, or 1 where there is no memory. */
int shoal_gru_forth(const Gru *s) {
    i64 T = s->steps, B = s->batch, I = s->inputs, H = s->width, P = filled(B);
    float *memory = room((I + 6 * H) * P);
    if (!memory) return 1;
    float *x = memory, *a = x + I * P, *g = a + 3 * H * P;
    memset(x, 0, 4 * I * P);
    for (i64 l = 0; l < s->lanes; l++) {
        const float *pass_bias = s->pass_bias + l * 3 * H, *before = 0;
        for (i64 t = 0; t < T; t++) {
            float *kept = s->kept + (l * T + t) * KEPT * H * P, *h = kept + STATE * H * P;
            turn(B, I, s->x + l * s->x_lane + t * s->x_step, s->x_row, x, P);
            product(3 * H, P, I, s->enter + l * 3 * H * I, I, x, P, a, P, s->enter_bias + l * 3 * H, 0);
            if (before)
                product(3 * H, P, H, s->pass + l * 3 * H * H, H, before, P, g, P, pass_bias, 0);
            else
                for (i64 i = 0; i < 3 * H; i++)
                    for (i64 j = 0; j < P; j += VL) store(g + i * P + j, all(pass_bias[i]));
            for (i64 j = 0; j < H * P; j += VL) {
                vec given = load(g + 2 * H * P + j), was = before ? load(before + j) : (vec){0};
                vec reset = sigmoid(load(a + j) + load(g + j));
                vec update = sigmoid(load(a + H * P + j) + load(g + H * P + j));
                vec new = tangent(load(a + 2 * H * P + j) + reset * given);
                store(kept + RESET * H * P + j, reset);
                store(kept + UPDATE * H * P + j, update);
                store(kept + NEW * H * P + j, new);
                store(kept + GIVEN_NEW * H * P + j, given);
                store(h + j, new + update * (was - new));
            }
            turn(H, B, h, P, s->states + (l * T + t) * B * H, H);
            before = h;
        }
    }
    free(memory);
    return 0;
}

/* Rows [B][N] as whole vectors, [B][filled(N)]. */
INLINE void widened(i64 B, i64 N, const float *from, i64 apart, float *to) {
    for (i64 b = 0; b < B; b++) memcpy(to + b * filled(N), from + b * apart, 4 * N);
}

/* Sums [O][filled(N)], without what fills them up. */
INLINE void narrowed(i64 O, i64 N, const float *from, float *to) {
    for (i64 i = 0; i < O; i++) memcpy(to + i * N, from + i * filled(N), 4 * N);
}

INLINE void add_rows(i64 O, i64 P, const float *rows, float *to) {
    for (i64 i = 0; i < O; i++) {
        vec total = {0};
        for (i64 j = 0; j < P; j += VL) total += load(rows + i * P + j);
        to[i] += sum(total);
    }
}

/* The gradients of all lanes. Gives 0, or 1 where there is no memory. */
int shoal_gru_back(const Gru *s) {
    i64 T = s->steps, B = s->batch, I = s->inputs, H = s->width, P = filled(B), FH = filled(H), FI = filled(I);
    i64 sizes[] = {H * P, H * P, 3 * H * P, I * P, B * FH, B * FI, 3 * H * FH, 3 * H * FI}, whole = 0;
    float *at[8];
    for (int i = 0; i < 8; i++) whole += sizes[i];
    float *memory = room(whole);
    if (!memory) return 1;
    memset(memory, 0, 4 * whole);
    at[0] = memory;
    for (int i = 1; i < 8; i++) at[i] = at[i - 1] + sizes[i - 1];
    float *slope = at[0], *back = at[1], *pulls = at[2], *to_x = at[3], *state = at[4], *x = at[5];
    float *to_pass = at[6], *to_enter = at[7];
    for (i64 l = 0; l < s->lanes; l++) {
        const float *pass = s->pass + l * 3 * H * H;
        float *enter_bias = s->to_enter_bias + l * 3 * H, *pass_bias = s->to_pass_bias + l * 3 * H;
        memset(back, 0, 4 * H * P);
        memset(to_pass, 0, 4 * 3 * H * (FH + FI)); /* and to_enter, which lies behind it */
        memset(enter_bias, 0, 4 * 3 * H);
        memset(pass_bias, 0, 4 * 3 * H);
        for (i64 t = T - 1; t >= 0; t--) {
            const float *kept = s->kept + (l * T + t) * KEPT * H * P;
            const float *before = t ? kept - (KEPT - STATE) * H * P : 0;
            turn(B, H, s->slope + (l * T + t) * B * H, H, slope, P);
            for (i64 j = 0; j < H * P; j += VL) {
                vec d = load(slope + j) + load(back + j), was = before ? load(before + j) : (vec){0};
                vec reset = load(kept + j), update = load(kept + UPDATE * H * P + j);
                vec new = load(kept + NEW * H * P + j), given = load(kept + GIVEN_NEW * H * P + j);
                vec at_new = d * (1.0f - update) * (1.0f - new * new);
                store(pulls + j, at_new * given * reset * (1.0f - reset));
                store(pulls + H * P + j, d * (was - new) * update * (1.0f - update));
                store(pulls + 2 * H * P + j, at_new * reset);
                store(slope + j, at_new);
                store(back + j, d * update);
            }
            add_rows(3 * H, P, pulls, pass_bias);
            if (before) {
                widened(B, H, s->states + (l * T + t - 1) * B * H, H, state);
                product(3 * H, FH, B, pulls, P, state, FH, to_pass, FH, 0, 1);
                turned_product(H, P, 3 * H, pass, H, pulls, P, back, P, 0, 1);
            }
            memcpy(pulls + 2 * H * P, slope, 4 * H * P); /* the inputs come to n without r */
            add_rows(3 * H, P, pulls, enter_bias);
            widened(B, I, s->x + l * s->x_lane + t * s->x_step, s->x_row, x);
            product(3 * H, FI, B, pulls, P, x, FI, to_enter, FI, 0, 1);
            if (s->to_x) {
                turned_product(I, P, 3 * H, s->enter + l * 3 * H * I, I, pulls, P, to_x, P, 0, 0);
                turn(I, B, to_x, P, s->to_x + (l * T + t) * B * I, I);
            }
        }
        narrowed(3 * H, H, to_pass, s->to_pass + l * 3 * H * H);
        narrowed(3 * H, I, to_enter, s->to_enter + l * 3 * H * I);
    }
    free(memory);
    return 0;
}
