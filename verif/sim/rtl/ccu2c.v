// Simulation model of the carry cell CCU2C of Lattice ECP5, as far as the array uses it: two
// look-up tables of four inputs, each with one place of a carry chain, nothing injected.
module CCU2C #(
    parameter [15:0] INIT0 = 16'h0000,
    parameter [15:0] INIT1 = 16'h0000,
    parameter INJECT1_0 = "NO",
    parameter INJECT1_1 = "NO"
) (
    input CIN,
    input A0, B0, C0, D0, A1, B1, C1, D1,
    output S0, S1, COUT
);
  wire table0 = INIT0[{D0, C0, B0, A0}];
  wire table1 = INIT1[{D1, C1, B1, A1}];
  // Where a place does not propagate, the lowest four entries say what it generates.
  wire carry0 = table0 ? CIN : INIT0[{2'b00, B0, A0}];
  assign S0 = table0 ^ CIN;
  assign S1 = table1 ^ carry0;
  assign COUT = table1 ? carry0 : INIT1[{2'b00, B1, A1}];
endmodule
