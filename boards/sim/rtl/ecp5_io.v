// Behaviour of the ECP5 blocks at the pins as boards/soc/ instantiates them. For simulation only; synthesis
// knows the real ones. The phase-locked loop has no behaviour here: whoever simulates drives its clocks.
module IB(input I, output O);
    assign O = I;
endmodule

module OB(input I, output O);
    assign O = I;
endmodule

module BB(input I, input T, output O, inout B);
    assign B = T ? 1'bz : I;
    assign O = B;
endmodule

module OFS1P3DX(input D, input SP, input SCLK, input CD, output reg Q);
    initial Q = 1'b1;
    always @(posedge SCLK) if (CD) Q <= 1'b0; else if (SP) Q <= D;
endmodule

module IFS1P3DX(input D, input SP, input SCLK, input CD, output reg Q);
    always @(posedge SCLK) if (CD) Q <= 1'b0; else if (SP) Q <= D;
endmodule

module ODDRX1F(input SCLK, input RST, input D0, input D1, output Q);
    reg high, low;
    always @(posedge SCLK) begin
        high <= D0 & ~RST;
        low <= D1 & ~RST;
    end
    assign Q = SCLK ? high : low;
endmodule
